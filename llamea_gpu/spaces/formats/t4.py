"""T4: the open result format of autotuning benchmarks, optionally with its T1 file.

Seconds charged: what the published methodology charges (autotuning_methodology 1.1.0, time keys
"all"): compilation + the sum of runtimes + framework + search_algorithm + validation, in the
file's time unit. Kernel Tuner 1.5.0 has no T4 reader; where its T4 *writer* left ``runtimes``
empty, its own ``benchmark`` time stands in for them.

The export writes seconds, one entry in ``runtimes`` that is the whole benchmark time (so that the
methodology charges the same), and under ``metadata`` whatever T4 has no word for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats._base import (
    Fields,
    RowCollector,
    as_number,
    default_name,
    format_errors,
    parse_json,
)
from llamea_gpu.spaces.formats._info import (
    info_from_json,
    parameters_from_json,
    parameters_to_json,
)
from llamea_gpu.spaces.formats._t1 import T1, check_coverage, read_t1
from llamea_gpu.spaces.formats.kernel_tuner_cache import (
    ERROR_WORDS,
    KERNEL_TUNER_ERROR_MS,
    STATUS_KEY,
    error_word,
    exact_status,
)
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
from llamea_gpu.spaces.space import Value

TAKES_T1 = True
SCHEMA_VERSION = "1.0.0"
# The methodology writes "miliseconds" itself, and takes a missing unit for seconds.
_UNIT_S = {
    "seconds": 1.0,
    "s": 1.0,
    "milliseconds": 1e3,
    "miliseconds": 1e3,
    "ms": 1e3,
    "microseconds": 1e6,
    "nanoseconds": 1e9,
    "ns": 1e9,
}
_STATUS = {
    "correct": "ok",
    "compile": "compile_error",
    "runtime": "runtime_error",
    "correctness": "incorrect",
    "timeout": "timeout",
}
_INVALIDITY = {status: invalidity for invalidity, status in _STATUS.items()} | {"error": "runtime"}
_OURS = "llamea_gpu"
_WITHOUT_T1 = (
    "without its T1 file, the values of parameters are those that were measured, and constraints, "
    "the kernel and its arguments are unknown: 'llamea-gpu spaces import FILE --t1 T1.json -o ...' "
    "adds them"
)


def recognises(head: str) -> bool:
    """T4 names its results or, in an export, its schema first."""
    return '"results"' in head or '"schema_version"' in head


def read(
    path: Path, text: str, t1: Path | None, name: str | None
) -> tuple[Recording, tuple[str, ...]]:
    """The recording; warnings about configurations left out or not measured."""
    description = None if t1 is None else read_t1(t1)
    top = Fields(path, "the top level", parse_json(path, text))
    results = top.sequence("results")
    metadata = Fields(path, "metadata", top.get("metadata") or {})
    ours = Fields(path, f"metadata.{_OURS}", metadata.get(_OURS) or {})
    rows = RowCollector(path, _names(path, results, description))
    unit = _unit(metadata)
    invalid = sum(
        not _add_row(rows, Fields(path, f"results[{i}]", result), unit)
        for i, result in enumerate(results)
    )
    notes = [f"{invalid} configurations that break constraints were left out"] * bool(invalid)
    if description is not None:
        exhaustive, warnings = check_coverage(rows, description)
        info = _info(path, name, description, exhaustive)
        return rows.build(description.values, info), (*notes, *warnings)
    if _OURS in metadata:
        _, values = parameters_from_json(ours)
        return rows.build(values, info_from_json(ours, name)), tuple(notes)
    notes.append(_WITHOUT_T1)
    return rows.build(rows.derived_values(), _info(path, name, None, False)), tuple(notes)


def write_t4(recording: Recording, path: Path) -> None:
    """Write T4 that imports back exactly and that the methodology charges alike."""
    space = recording.space
    status = [STATUSES[code] for code in recording.status.tolist()]
    columns = zip(
        space.configurations.tolist(),
        recording.time_ms.tolist(),
        recording.compile_s.tolist(),
        recording.benchmark_s.tolist(),
        status,
        strict=True,
    )
    header = {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "timeunit": "seconds",
            _OURS: {
                **asdict(recording.info),
                "parameters": parameters_to_json(space.names, space.values),
            },
        },
    }
    lines = [json.dumps(_result(space.value_dict(c), *rest)) for c, *rest in columns]
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header)[:-1] + ', "results": [\n')
        file.write(",\n".join(lines) + "\n]}\n")


def _names(path: Path, results: Sequence[Any], t1: T1 | None) -> Sequence[str]:
    if t1 is not None:
        return t1.names
    if not results:
        raise SpaceFormatError(path, "results", "no configuration was measured", "Record some.")
    return list(Fields(path, "results[0]", results[0]).mapping("configuration"))


def _unit(metadata: Fields) -> float:
    unit = metadata.text("timeunit", "seconds")
    if unit.lower() not in _UNIT_S:
        raise metadata.error(f"timeunit must be one of {sorted(_UNIT_S)}, but is {quoted(unit)}")
    return _UNIT_S[unit.lower()]


def _add_row(rows: RowCollector, fields: Fields, unit: float) -> bool:
    """Add one result; False for a configuration that is not valid at all."""
    validity = fields.text("invalidity")
    measured = _measured_time(fields)
    if validity == "constraints" or measured == "InvalidConfig":
        return False
    if validity not in _STATUS:
        raise fields.error(
            f"invalidity must be one of {sorted(_STATUS)}, but is {quoted(validity)}"
        )
    status = _STATUS[validity]
    times = Fields(fields.path, f"{fields.position}.times", fields.mapping("times"))
    runtimes = _runtimes(times)
    if status == "ok" and isinstance(measured, str):
        status = ERROR_WORDS.get(measured, "error")
    time_ms = math.inf
    if status == "ok":
        time_ms = measured if isinstance(measured, float) else _mean_ms(fields, runtimes, unit)
        if time_ms == KERNEL_TUNER_ERROR_MS:
            status, time_ms = "error", math.inf
    overhead = [times.duration(key, 0.0) for key in ("framework", "search_algorithm", "validation")]
    run_time = sum(runtimes) if runtimes else times.duration("benchmark", 0.0)
    seconds = (times.duration("compilation", 0.0) / unit, (sum(overhead) + run_time) / unit)
    configuration = fields.mapping("configuration")
    rows.add(fields, configuration, time_ms, seconds, exact_status(fields, status))
    return True


def _measured_time(fields: Fields) -> float | str | None:
    """Kernel time in ms, an error word, or None when the result has no measurement "time"."""
    measurements = fields.get("measurements") or []
    if not isinstance(measurements, list):
        raise fields.error("'measurements' must be an array")
    for measurement in measurements:
        if not isinstance(measurement, dict) or measurement.get("name") != "time":
            continue
        value = measurement.get("value")
        if isinstance(value, str):
            return value
        unit = measurement.get("unit") or "ms"
        number = as_number(value)
        known = isinstance(unit, str) and unit in _UNIT_S
        if number is None or not 0 < number < math.inf or not known:
            raise fields.error(
                f"the measurement 'time' must be a number > 0 in ms or s, but is "
                f"{quoted(value)} {quoted(unit)}"
            )
        return number * (1e3 / _UNIT_S[unit])
    return None


def _runtimes(times: Fields) -> list[float]:
    runtimes = times.get("runtimes") or []
    if not isinstance(runtimes, list):
        raise times.error("'runtimes' must be an array")
    return [times.checked_duration("a runtime", value) for value in runtimes]


def _mean_ms(fields: Fields, runtimes: Sequence[float], unit: float) -> float:
    if not runtimes or sum(runtimes) <= 0:
        raise fields.error("is 'correct' but has neither a measurement 'time' nor runtimes")
    return sum(runtimes) / len(runtimes) * (1e3 / unit)


def _info(path: Path, name: str | None, t1: T1 | None, exhaustive: bool) -> RecordingInfo:
    called = name or default_name(path)
    folder = path.resolve().parent.name
    with format_errors(path, "the description"):
        return RecordingInfo(
            name=called,
            kernel=(t1.kernel or t1.benchmark if t1 else "") or folder or called,
            device=default_name(path).removeprefix(f"{folder}-"),
            framework=(t1.language if t1 else "") or "unknown",
            arguments=t1.arguments if t1 else (),
            default_configuration=t1.default_configuration if t1 else None,
            provenance={
                "source": f"T4 file {path.name}" + (f" with {t1.path.name}" if t1 else ""),
                "benchmark_s": "sum of runtimes, framework, search_algorithm and validation times",
                "device": "taken from the file's name",
            },
            exhaustive=exhaustive,
        )


def _result(
    configuration: Mapping[str, Value],
    time_ms: float,
    compile_s: float,
    benchmark_s: float,
    status: str,
) -> dict[str, Any]:
    ok = status == "ok"
    result = {
        "configuration": dict(configuration),
        "times": {
            "compilation": compile_s,
            "framework": 0,
            "search_algorithm": 0,
            "validation": 0,
            "runtimes": [benchmark_s],
        },
        "invalidity": _INVALIDITY[status],
        "correctness": int(ok),
        "measurements": [
            {"name": "time", "value": time_ms if ok else error_word(status), "unit": "ms"}
        ],
        "objectives": ["time"],
    }
    if _STATUS[_INVALIDITY[status]] != status:
        result[STATUS_KEY] = status
    return result
