"""Helion's ``<run>.trace.jsonl``, written with HELION_AUTOTUNE_LOG and ..._LOG_DETAILS=1.

One JSON event a line. ``trial`` is the outcome of one configuration, ``trial_start`` says that its
timing began, ``rebenchmark`` is a later, longer timing of a good one; the other events are not
needed. Decisions:

- A configuration's entries become parameters, lists element by element (``block_sizes[1]``). An
  entry that some configurations leave out has the value None there. Entries that never vary are
  noted in the provenance instead.
- Of several timings of one configuration the last finite one counts: Helion times again, longer,
  what it may select. It failed only if nothing ever timed it; then its last status counts.
- compile_s is the first compile time given; benchmark_s is the time from the last ``trial_start``
  to its ``trial``, 0 when it never came to timing.
- ``<run>.meta.jsonl`` beside the trace gives kernel, shapes and device, when it is there.

A last line cut short by a kill is left out with a warning. Such a recording holds what one search
visited, so it is never exhaustive. There is no export to this format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from llamea_gpu.spaces.formats._files import read_text
from llamea_gpu.spaces.parameters import checked_names
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.spaces.space import Value

# helion 1.5.0, autotuner/base_search.py; "filtered" never was a candidate.
_STATUS = {
    "ok": "ok",
    "deduplicated": "ok",
    "error": "error",
    "peer_compilation_fail": "compile_error",
    "timeout": "timeout",
    "accuracy_error": "incorrect",
    "source_rejected": "incorrect",
}
_IGNORED = "filtered"
TAKES_T1 = False
_SCHEMA_VERSION = 1


@dataclass
class _Trial:
    """What the trace has said so far of one configuration."""

    fields: Fields
    configuration: Mapping[str, Value]
    status: str = ""
    time_ms: float = math.inf
    compile_s: float | None = None
    started_s: float | None = None
    benchmark_s: float = 0.0
    timings: int = 0


def recognises(head: str) -> bool:
    """The first line is an event of a run."""
    try:
        first = json.loads(head.partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "event" in first and "run_id" in first


def read(
    path: Path,
    text: str,
    t1: Path | None,  # noqa: ARG001 - takes none
    name: str | None,
) -> tuple[Recording, tuple[str, ...]]:
    """The recording; warnings about a cut last line and about merged runs."""
    events, notes = _events(path, text)
    trials: dict[str, _Trial] = {}
    for event in events:
        _digest(trials, event)
    measured = [trial for trial in trials.values() if trial.status]
    if not measured:
        raise SpaceFormatError(
            path, "the whole file", "no trial ended", "Let the search run for longer."
        )
    runs = {str(event.get("run_id")) for event in events}
    if len(runs) > 1:
        notes.append(f"{len(runs)} runs are merged: they must have tuned the same kernel")
    return _recording(path, name, measured), tuple(notes)


def _events(path: Path, text: str) -> tuple[list[Fields], list[str]]:
    lines = text.split("\n")
    events: list[Fields] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = parse_json(path, line, number)
        except SpaceFormatError:
            if number < len(lines):  # only the last line has no line break after it
                raise
            return events, [f"line {number} is cut short (a killed run): left out"]
        event = Fields(path, f"line {number}", document)
        if event.get("schema_version") != _SCHEMA_VERSION:
            raise event.error(
                f"schema_version must be {_SCHEMA_VERSION}, but is "
                f"{quoted(event.get('schema_version'))}",
                "Record with a version of Helion whose traces are known (1.5).",
            )
        events.append(event)
    return events, []


def _digest(trials: dict[str, _Trial], event: Fields) -> None:
    kind = event.text("event")
    if kind not in ("trial_start", "trial", "rebenchmark"):
        return
    status = event.text("status")
    if status == _IGNORED:
        return
    configuration = _flatten(event, event.mapping("config"))
    key = json.dumps(configuration, sort_keys=True)
    trial = trials.setdefault(key, _Trial(event, configuration))
    if kind == "trial_start":
        trial.started_s = event.duration("elapsed_s")
        return
    if status not in _STATUS:
        raise event.error(f"status must be one of {sorted(_STATUS)}, but is {quoted(status)}")
    if event.text("objective_unit", "ms") != "ms":
        raise event.error(f"times must be in ms, but are in {quoted(event.get('objective_unit'))}")
    if trial.compile_s is None and event.get("compile_time_s") is not None:
        trial.compile_s = event.duration("compile_time_s")
    if kind == "trial" and trial.started_s is not None:
        trial.benchmark_s = max(0.0, event.duration("elapsed_s") - trial.started_s)
        trial.started_s = None
    _take_timing(trial, event, _STATUS[status])


def _take_timing(trial: _Trial, event: Fields, status: str) -> None:
    if status != "ok":
        if trial.status != "ok":
            trial.status = status
        return
    time_ms = as_number(event.get("perf_ms"))
    if time_ms is None or not 0 < time_ms < math.inf:
        raise event.error(
            f"'perf_ms' must be a number > 0 when ok, but is {quoted(event.get('perf_ms'))}"
        )
    trial.status, trial.time_ms = "ok", time_ms
    trial.timings += 1


def _flatten(event: Fields, config: Mapping[str, Any]) -> dict[str, Value]:
    flat: dict[str, Value] = {}
    for key, value in config.items():
        if isinstance(value, list) and value:
            flat.update({f"{key}[{i}]": _single(element) for i, element in enumerate(value)})
        else:
            flat[key] = _single(value)
    if not flat:
        raise event.error("'config' is empty")
    return flat


def _single(value: object) -> Value:
    """Nested lists (an order of loops) are one choice: their JSON text stands for them."""
    if isinstance(value, int | float | str | bool | None):
        return value
    return json.dumps(value, sort_keys=True)


def _recording(path: Path, name: str | None, trials: Sequence[_Trial]) -> Recording:
    # Every entry of any configuration, in order of first appearance.
    with format_errors(path, "the entries of 'config'"):
        entries = checked_names(
            list(dict.fromkeys(key for trial in trials for key in trial.configuration))
        )
    seen = {key: {trial.configuration.get(key) for trial in trials} for key in entries}
    names = [key for key in entries if len(seen[key]) > 1]
    if not names:
        raise SpaceFormatError(
            path, "the whole file", "only one configuration was tried", "Search for longer."
        )
    rows = RowCollector(path, names)
    for trial in trials:
        rows.add(
            trial.fields,
            {key: trial.configuration.get(key) for key in names},
            trial.time_ms,
            (trial.compile_s or 0.0, trial.benchmark_s),
            trial.status,
        )
    constants = {key: next(iter(seen[key])) for key in entries if key not in names}
    repeated = sum(trial.timings > 1 for trial in trials)
    info = _info(
        path,
        name,
        {
            "source": f"Helion trace {path.name}",
            "constants": json.dumps(constants),
            "time_ms": f"the last timing; {repeated} configurations were timed more than once",
        },
    )
    return rows.build(rows.derived_values(), info)


def _info(path: Path, name: str | None, provenance: dict[str, str]) -> RecordingInfo:
    meta = _meta(path)
    workers = 1
    provenance["parallel_workers"] = "not noted beside the trace: taken as 1"
    settings = Fields(meta.path, f"{meta.position}, settings", meta.get("settings") or {})
    jobs = settings.get("autotune_precompile_jobs")
    if type(jobs) is int and jobs > 0:
        workers = jobs
        provenance["parallel_workers"] = "Helion's autotune_precompile_jobs"
    with format_errors(path, "the description"):
        return RecordingInfo(
            name=name or default_name(path),
            kernel=meta.text("kernel_name", "") or default_name(path),
            device=meta.text("hardware", "") or "unknown",
            framework="helion",
            kernel_source=meta.text("kernel_source", ""),
            arguments=(
                {"shapes": meta.text("input_shapes", ""), "dtypes": meta.text("dtypes", "")},
            )
            if "input_shapes" in meta
            else (),
            parallel_workers=workers,
            provenance=provenance,
            exhaustive=False,
        )


def _meta(path: Path) -> Fields:
    """The last record of ``<run>.meta.jsonl`` beside the trace; empty when there is none."""
    beside = path.with_name(path.name.removesuffix(".gz").replace(".trace.jsonl", ".meta.jsonl"))
    if beside.name == path.name or not beside.is_file():
        return Fields(beside, "the whole file", {})
    lines = [line for line in read_text(beside).split("\n") if line.strip()]
    if not lines:
        return Fields(beside, "the whole file", {})
    return Fields(beside, f"line {len(lines)}", parse_json(beside, lines[-1], len(lines)))
