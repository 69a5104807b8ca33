"""Kernel Tuner's cache files: JSON with the tuning parameters and one entry a configuration.

Seconds charged: what Kernel Tuner 1.5.0 charges in simulation mode, compile_time +
verification_time + benchmark_time, in ms in the file. A run that was interrupted leaves the file
unclosed, maybe in the middle of an entry: its complete entries are salvaged and a warning says how
many. Anything malformed before the end is an error.

The export is read by Kernel Tuner itself. Its entries carry the whole benchmark time as one of
``times``, so that tools which sum those charge the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.spaces.formats._base import (
    Fields,
    RowCollector,
    as_number,
    default_name,
    format_errors,
    parse_json,
)
from llamea_gpu.spaces.formats._info import info_from_json
from llamea_gpu.spaces.formats._t1 import T1, check_coverage, read_t1
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
from llamea_gpu.spaces.space import Value

TAKES_T1 = True
_OURS = "llamea_gpu"
# Milliseconds cannot express every double of seconds; where not, these keep the exact one.
_EXACT_KEYS = {"compile_s": "llamea_gpu_compile_s", "benchmark_s": "llamea_gpu_benchmark_s"}
_ENTRY_KEYS = (
    "time",
    "times",
    "compile_time",
    "verification_time",
    "benchmark_time",
    "strategy_time",
    "framework_time",
    "timestamp",
)
_FORBIDDEN_NAMES = (*_ENTRY_KEYS, "grid_size_x", "grid_size_y", "grid_size_z")


# Kernel Tuner's error classes, written as text where a time would stand.
ERROR_WORDS = {
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "runtime_error",
    "ErrorConfig": "error",
}
INVALID_WORD = "InvalidConfig"
# What old versions of Kernel Tuner wrote as the time of a configuration that failed.
KERNEL_TUNER_ERROR_MS = 1e20
# Both formats have fewer words than STATUSES; an export adds the exact one under this key.
STATUS_KEY = "llamea_gpu_status"


def recognises(head: str) -> bool:
    """The header comes first in every version."""
    return '"tune_params_keys"' in head or ('"kernel_name"' in head and '"cache"' in head)


def read(
    path: Path, text: str, t1: Path | None, name: str | None
) -> tuple[Recording, tuple[str, ...]]:
    """The recording; warnings about salvaged, left out or missing configurations."""
    description = None if t1 is None else read_t1(t1)
    document, notes = _parse(path, text)
    header = Fields(path, "the header", document)
    names = _names(header)
    rows = RowCollector(path, names if description is None else description.names)
    invalid = 0
    for key, entry in header.mapping("cache").items():
        invalid += not _add_row(rows, Fields(path, f"cache[{quoted(key)}]", entry), names)
    if invalid:
        notes.append(f"{invalid} configurations that break constraints were left out")
    if description is not None:
        exhaustive, warnings = check_coverage(rows, description)
        info = _info(header, name, description, exhaustive)
        return rows.build(description.values, info), (*notes, *warnings)
    values = _values(header, names) if "tune_params" in header else rows.derived_values()
    if _OURS in header:
        ours = Fields(path, f"the header's {_OURS!r}", header.get(_OURS))
        return rows.build(values, info_from_json(ours, name)), tuple(notes)
    # Without constraints only the whole product is known to be everything.
    whole = "tune_params" in header and len(rows) == math.prod(len(v) for v in values)
    return rows.build(values, _info(header, name, None, whole)), tuple(notes)


def write_kernel_tuner_cache(recording: Recording, path: Path) -> None:
    """Write a cache that imports back exactly and that Kernel Tuner simulates from.

    Raises:
        SpaceError: a parameter has a name that Kernel Tuner forbids, or two configurations would
            get the same cache key.
    """
    space, info = recording.space, recording.info
    forbidden = sorted(set(space.names) & set(_FORBIDDEN_NAMES))
    if forbidden:
        raise SpaceError(
            f"Kernel Tuner forbids parameters named like its own entries, but got {forbidden}: "
            f"rename them"
        )
    entries: dict[str, str] = {}
    for row in range(space.size):
        configuration = space.value_dict(space.configuration(row))
        key = ",".join(str(value) for value in configuration.values())
        if key in entries:
            raise SpaceError(
                f"configurations must differ as text in Kernel Tuner's cache, but two are "
                f"{quoted(key)}"
            )
        entries[key] = json.dumps(_entry(recording, row, configuration))
    header = {
        "device_name": info.device,
        "kernel_name": info.kernel,
        "problem_size": _problem_size(info.provenance),
        "tune_params_keys": list(space.names),
        "tune_params": dict(zip(space.names, map(list, space.values), strict=True)),
        "objective": "time",
        _OURS: asdict(info),
    }
    lines = [f"{json.dumps(key)}: {entry}" for key, entry in entries.items()]
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header)[:-1] + ', "cache": {\n')
        # Kernel Tuner takes a file for closed only when it ends in exactly this way.
        file.write(",\n".join(lines) + "}\n}")


def _parse(path: Path, text: str) -> tuple[object, list[str]]:
    try:
        return parse_json(path, text), []
    except SpaceFormatError as error:
        if not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        salvaged = _salvage(path, text)
        if salvaged is None:
            raise
        return salvaged


def _salvage(path: Path, text: str) -> tuple[object, list[str]] | None:
    """The complete entries of an unclosed cache; None when that is not what is wrong."""
    opening = re.search(r'"cache"\s*:\s*\{', text)
    if opening is None:
        return None
    header = parse_json(path, text[: opening.end()] + "}}")
    entries, end = _complete_entries(path, text, opening.end())
    # At most one entry may be broken: the last thing in the file, begun and never closed.
    rest = text[end:].strip().removeprefix(",").strip()
    closed = rest == "}"
    cut = rest.startswith('"') and not rest.endswith("}")
    several = len(re.findall(r'"\s*:\s*\{', rest)) > 1
    if not entries or several or not (closed or cut or not rest):
        return None
    header["cache"] = entries
    note = f"the cache was never closed (an interrupted run): {len(entries):,} configurations kept"
    if cut:
        note += f", an incomplete one of {len(rest):,} characters left out"
    return header, [note]


def _complete_entries(path: Path, text: str, position: int) -> tuple[dict[str, Any], int]:
    """Entries of an object whose inside starts at ``position``, and where the last one ends."""
    decoder = json.JSONDecoder()
    separator = re.compile(r"\s*,?\s*")
    colon = re.compile(r"\s*:\s*")
    entries: dict[str, Any] = {}
    end = position
    while True:
        start = separator.match(text, end).end()  # type: ignore[union-attr]  # matches nothing too
        try:
            key, after = decoder.raw_decode(text, start)
            match = colon.match(text, after)
            if not isinstance(key, str) or match is None:
                return entries, end
            value, after = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return entries, end
        if key in entries:
            raise SpaceFormatError(
                path, f"cache[{quoted(key)}]", "appears twice", "Keep one of the two entries."
            )
        entries[key], end = value, after


def _names(header: Fields) -> list[str]:
    if "tune_params_keys" not in header:
        return list(header.mapping("tune_params"))
    names = header.sequence("tune_params_keys")
    if not all(isinstance(name, str) for name in names):
        raise header.error("'tune_params_keys' must be an array of strings")
    return names


def _values(header: Fields, names: Sequence[str]) -> list[list[Value]]:
    tune_params = header.mapping("tune_params")
    for name in names:
        values = tune_params.get(name)
        if not isinstance(values, list) or any(isinstance(v, list | dict) for v in values):
            raise header.error(f"tune_params[{quoted(name)}] must be an array of single values")
    return [tune_params[name] for name in names]


def _add_row(rows: RowCollector, fields: Fields, names: Sequence[str]) -> bool:
    """Add one entry; False for a configuration that is not valid at all."""
    word = next(
        (w for w in (fields.get("time"), fields.get("__error__")) if isinstance(w, str)), None
    )
    if word == INVALID_WORD:
        return False
    status, time_ms = "ok", math.inf
    if word is not None:
        if word not in ERROR_WORDS:
            raise fields.error(
                f"must hold a time or one of {sorted(ERROR_WORDS)}, not {quoted(word)}"
            )
        status = ERROR_WORDS[word]
    else:
        number = as_number(fields.get("time"))
        if number is None or not 0 < number < math.inf:
            raise fields.error(
                f"'time' must be a number > 0 (ms), but is {quoted(fields.get('time'))}"
            )
        if number == KERNEL_TUNER_ERROR_MS:
            status = "error"
        else:
            time_ms = number
    benchmark_ms = fields.duration("verification_time") + fields.duration("benchmark_time")
    seconds = (
        fields.duration(_EXACT_KEYS["compile_s"], fields.duration("compile_time") / 1e3),
        fields.duration(_EXACT_KEYS["benchmark_s"], benchmark_ms / 1e3),
    )
    configuration = {name: fields.get(name) for name in names if name in fields}
    rows.add(fields, configuration, time_ms, seconds, exact_status(fields, status))
    return True


def _info(header: Fields, name: str | None, t1: T1 | None, exhaustive: bool) -> RecordingInfo:
    with format_errors(header.path, header.position):
        return RecordingInfo(
            name=name or default_name(header.path),
            kernel=header.text("kernel_name"),
            device=header.text("device_name"),
            framework="kernel_tuner" + (f" ({t1.language})" if t1 and t1.language else ""),
            arguments=t1.arguments if t1 else (),
            default_configuration=t1.default_configuration if t1 else None,
            provenance={
                "source": f"Kernel Tuner cache {header.path.name}",
                "benchmark_s": "verification_time + benchmark_time",
                "problem_size": json.dumps(header.get("problem_size")),
            },
            exhaustive=exhaustive,
        )


def _problem_size(provenance: Mapping[str, str]) -> object:
    try:
        return json.loads(provenance.get("problem_size", "")) or [1]
    except ValueError:
        return [1]


def _entry(recording: Recording, row: int, configuration: Mapping[str, Value]) -> dict[str, Any]:
    status = STATUSES[int(recording.status[row])]
    seconds = {
        "compile_s": float(recording.compile_s[row]),
        "benchmark_s": float(recording.benchmark_s[row]),
    }
    milliseconds = {key: _milliseconds(value) for key, value in seconds.items()}
    ok = status == "ok"
    entry: dict[str, Any] = {
        **configuration,
        "time": float(recording.time_ms[row]) if ok else error_word(status),
        **({"times": [milliseconds["benchmark_s"]]} if ok else {}),
        "compile_time": milliseconds["compile_s"],
        "verification_time": 0,
        "benchmark_time": milliseconds["benchmark_s"],
        "strategy_time": 0,
        "framework_time": 0,
    }
    if not ok and ERROR_WORDS[error_word(status)] != status:
        entry[STATUS_KEY] = status
    for key, value in seconds.items():
        if milliseconds[key] / 1e3 != value:
            entry[_EXACT_KEYS[key]] = value
    return entry


def _milliseconds(seconds: float) -> float:
    """The number of ms that divides back to ``seconds``, if a double near it does."""
    nearest = seconds * 1e3
    around = (nearest, math.nextafter(nearest, 0.0), math.nextafter(nearest, math.inf))
    return next((ms for ms in around if ms / 1e3 == seconds), nearest)


def error_word(status: str) -> str:
    """The error class that stands for a failed status."""
    return "CompilationFailedConfig" if status == "compile_error" else "RuntimeFailedConfig"


def exact_status(fields: Fields, status: str) -> str:
    """The status that an export noted, else ``status``.

    Raises:
        SpaceFormatError: the noted one is unknown or contradicts whether it failed.
    """
    noted = fields.get(STATUS_KEY)
    if noted is None:
        return status
    if noted not in STATUSES or (noted == "ok") != (status == "ok"):
        raise fields.error(
            f"{STATUS_KEY!r} must be a status that fits {status!r}, not {quoted(noted)}"
        )
    return str(noted)
