"""Tuning a recording: what a searcher would have found, on simulated time.

A generated optimizer runs in the sandbox, a library's searcher and ``llm:`` in a worker process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from llamea_gpu.errors import SearcherError
from llamea_gpu.live.result import (
    Measured,
    TuneSettings,
    TuningResult,
    params_code,
)
from llamea_gpu.runner import Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace, build_tasks

_ELEMENT = re.compile(r"^(.+)\[(\d+)\]$")


def tune_recording(recording: Recording, searcher: str, settings: TuneSettings) -> TuningResult:
    """Run the searcher of that spec once on ``recording``.

    Without a budget of its own it gets the task's. With ``evaluations`` each of them takes one
    simulated second, whatever it took when it was recorded.

    Raises:
        SearcherError: no such searcher, or it failed before it measured anything that works; or
            a cluster is named.
    """
    if settings.cluster:
        raise SearcherError(
            f"a recording is tuned on this machine, but got the cluster {settings.cluster!r}: "
            f"leave it out, or use 'bench --cluster' for many runs"
        )
    task = _task(recording, settings)
    limits = None if settings.cpu_s is None else Limits(cpu_s=settings.cpu_s)
    with Runner.open(workers=1, unsafe=settings.unsafe) as runner:
        trace = runner.run(resolve(searcher), task, settings.seed, limits=limits)
    if trace.is_faulty and not np.isfinite(trace.cost_ms).any():
        raise SearcherError(f"{searcher} failed on {recording.info.name}:\n{trace.error}")
    return _result(recording, searcher, settings, task, trace)


def counted_task(task: Task, evaluations: int) -> Task:
    """The task with a number of configurations as its budget: each takes one second."""
    count = task.recording.space.size
    even = replace(task.recording, compile_s=np.zeros(count), benchmark_s=np.ones(count))
    return replace(task, recording=even, budget_s=float(evaluations))


def _task(recording: Recording, settings: TuneSettings) -> Task:
    task = build_tasks([recording], settings.clock)[0]
    if settings.evaluations is not None:
        if settings.seconds is not None:
            raise SearcherError("a recording is tuned by evaluations or by seconds, but got both")
        return counted_task(task, settings.evaluations)
    return task if settings.seconds is None else replace(task, budget_s=settings.seconds)


def _result(
    recording: Recording, searcher: str, settings: TuneSettings, task: Task, trace: Trace
) -> TuningResult:
    space, info = recording.space, recording.info
    measured = tuple(
        Measured(space.value_dict(space.configuration(int(row))), float(cost_ms), float(elapsed_s))
        for row, cost_ms, elapsed_s in zip(trace.rows, trace.cost_ms, trace.elapsed_s, strict=True)
    )
    best = min(measured, key=lambda each: each.time_ms, default=None)
    if best is not None and not np.isfinite(best.time_ms):
        best = None
    return TuningResult(
        searcher=searcher,
        framework=info.framework,
        kernel=info.kernel,
        device=info.device,
        seed=settings.seed,
        clock=task.clock.name if settings.evaluations is None else "one second an evaluation",
        measured=measured,
        best=best,
        default_ms=recording.default_ms,
        elapsed_s=measured[-1].elapsed_s if measured else 0.0,
        code="" if best is None else _code(recording, best.configuration),
        trouble=trace.error or "",
        optimum_ms=recording.optimum_ms,
    )


def _code(recording: Recording, configuration: Mapping[str, Any]) -> str:
    """For the recording's framework; a plain mapping where its names are not the framework's."""
    if not recording.info.framework.lower().startswith("helion"):
        return params_code(configuration)
    config = _whole_config(recording.info.provenance.get("default_config", ""))
    for name, value in configuration.items():
        element = _ELEMENT.match(name)
        stem, place = (element[1], int(element[2])) if element else (name, None)
        slot_value = config.get(stem)
        if stem not in config:
            return f"slots = {dict(configuration)!r}"
        if place is None:
            config[stem] = value
        elif isinstance(slot_value, list) and place < len(slot_value):
            slot_value[place] = value
        else:
            return f"slots = {dict(configuration)!r}"
    items = ", ".join(f"{name}={value!r}" for name, value in sorted(config.items()))
    return f"@helion.kernel(config=helion.Config({items}))"


def _whole_config(text: str) -> dict[str, Any]:
    """What a recording says of slots that it did not vary; text from a file, so it may be off."""
    try:
        config = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    return {name: value for name, value in config.items() if name.isidentifier()}
