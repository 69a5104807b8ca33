"""The journal of a live tuning: what was measured is not measured again.

JSON lines. The first says of what kernel, arguments, space and machine the journal is; each further
one is a configuration: ``c`` (value indices), ``how`` (the searcher that asked for it), ``status``
(``ok``, or Kernel Tuner's word for a failure), ``ms`` with all readings as ``times``,
``compile_ms``, ``check_ms``, ``bench_ms``, ``at`` (seconds from the run's beginning until it was
known) and ``message``.

What it does not hold: metrics, which are computed from these; answers of Kernel Tuner's caches are
like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernel_tuner import util

from llamea_gpu.engine.journal import is_number, open_journal, unsound
from llamea_gpu.frameworks.kernel_tuner.kernel_script import KernelScript, plain
from llamea_gpu.live.kernel_tuner.facts import MESSAGE, ExplainingEvaluate, device_name
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.recording import LEAST_TIME_MS, MOST_S, MOST_TIME_MS

_ERRORS = {
    str(kind()): kind
    for kind in (util.InvalidConfig, util.CompilationFailedConfig, util.RuntimeFailedConfig)
}
_SECONDS = {
    "compile_ms": "compile_time",
    "check_ms": "verification_time",
    "bench_ms": "benchmark_time",
}


class TuningJournal:
    """The journal of one run, open from :meth:`begin` on.

    Attributes:
        at_s: when each configuration of earlier runs was known, in their order.
    """

    def __init__(self, path: Path, origin: str, closing: ExitStack) -> None:
        self._path, self._how, self._closing = path, origin, closing
        self._results = 0  # that are in the journal
        self.at_s: list[float] = []

    def begin(self, evaluate: ExplainingEvaluate, script: KernelScript) -> None:
        """Open it, and have ``evaluate`` know what it holds; the time that it took is used.

        Raises:
            RecordingError: it is of something else, is damaged, in use, or cannot be written.
        """
        self._space = evaluate.space
        self._index = [
            {(type(v), v): i for i, v in enumerate(values)} for values in self._space.values
        ]
        opened = open_journal(self._path, _header(evaluate, script))
        self._journal = self._closing.enter_context(opened)
        known = []
        for number, entry in enumerate(self._journal.entries, start=2):
            row, result, at_s = self._read(entry, number)
            known.append((row, result))
            self.at_s.append(at_s)
        self._results = len(known)
        evaluate.remember(known, max(self.at_s, default=0.0))

    def note(self, results: Sequence[Mapping[str, Any]], at_s: float) -> None:
        """Write those of all results so far that are new.

        Raises:
            OSError: there is no room, or the disk fails.
        """
        for result in results[self._results :]:
            self._journal.append({**self._entry(result), "how": self._how, "at": round(at_s, 3)})
            self._results += 1

    def _entry(self, result: Mapping[str, Any]) -> dict[str, Any]:
        names = zip(self._space.names, self._index, strict=True)
        values = ((index, plain(result[name])) for name, index in names)
        failure = str(result.get("__error__", ""))
        entry: dict[str, Any] = {
            "c": [index[type(value), value] for index, value in values],
            "status": failure or "ok",
        }
        if not failure:
            entry["ms"] = float(result["time"])
            entry["times"] = [float(time) for time in result.get("times", ())]
        for key, name in _SECONDS.items():
            entry[key] = round(float(result.get(name, 0.0)), 3)
        if result.get(MESSAGE):
            entry["message"] = result[MESSAGE]
        return entry

    def _read(self, entry: Mapping[str, Any], number: int) -> tuple[int, dict[str, Any], float]:
        """One line, checked: a row, its result and when it was known.

        Raises:
            RecordingError: it is none that :meth:`note` would write.
        """
        raw_config, status = entry.get("c"), entry.get("status")
        row = self._space.row(raw_config) if isinstance(raw_config, list) else -1
        times_ms = [entry.get("ms"), *_list(entry.get("times"))] if status == "ok" else []
        seconds = {name: entry.get(key, 0.0) for key, name in _SECONDS.items()}
        sound = (
            row >= 0
            and (status == "ok" or status in _ERRORS)
            and all(is_number(time, LEAST_TIME_MS, MOST_TIME_MS) for time in times_ms)
            and all(is_number(each, 0.0, 1e3 * MOST_S) for each in seconds.values())
            and is_number(entry.get("at"), 0.0, MOST_S)
        )
        if not sound:
            raise unsound(entry, self._path, number)
        result = dict(zip(self._space.names, self._space.native[row], strict=True)) | seconds
        if status == "ok":
            result |= {"time": times_ms[0], "times": times_ms[1:]}
        else:
            result |= {"__error__": _ERRORS[str(status)](), MESSAGE: str(entry.get("message", ""))}
        return row, result, float(entry["at"])


def _header(evaluate: ExplainingEvaluate, script: KernelScript) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    space, runner = evaluate.space, evaluate.func.runner
    valid = json.dumps([list(map(str, config)) for config in space.native])
    return {
        "journal": 1,
        "kernel": str(script.arguments["kernel_name"]),
        "script": script.name,
        "names": list(space.names),
        "values": [list(values) for values in space.values],
        "configurations": hashlib.sha256(valid.encode()).hexdigest(),
        "kernel_source": script.kernel_text(),
        "arguments": [dict(facts) for facts in script.argument_facts()],
        "problem_size": script.problem_size(),
        "launch": script.launch(),
        "verified": script.verified,
        "device": device_name(runner),
        "language": str(runner.kernel_source.lang),
        "iterations": runner.dev.iterations,
        "kernel_tuner": require("kernel_tuner", "kernel-tuner", "tuning a Kernel Tuner kernel"),
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
