"""Timing by a formula, in a process that need import nothing of Helion."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.engine.worker import Channel
from llamea_gpu.errors import RecordingError


def code_ms(path: str) -> float:
    """The time of generated code: by its name, which is a hash of it."""
    return 0.01 + int(Path(path).stem[:6], 16) / (1 << 24)


@dataclass(frozen=True)
class FormulaTiming:
    """Times by `code_ms`, leaves a trail in ``folder``, and fails as ``faults`` says.

    ``faults`` names what happens to the n-th timing of all: hang, crash, broken, refuses. With
    ``slow_s`` each takes so long.
    """

    folder: Path
    data: Path
    faults: Mapping[int, str]
    slow_s: float = 0.0

    def run(self, channel: Channel) -> None:
        while not self.data.exists():
            time.sleep(0.005)
        channel.serve({"opened_s": {"imports": 0.25, "cuda": 0.5}}, self.handle)

    def handle(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        if "paths" in task:
            self.note({"paths": task["paths"], "seconds": task["seconds"]})
            times = map(code_ms, task["paths"])
            return {"status": "ok", "standings": [[t, t, t, 6] for t in times]}
        number = len(timings(self.folder))
        self.note({"path": task["path"], "pid": os.getpid()})
        time.sleep(self.slow_s)
        fault = self.faults.get(number, "")
        if fault == "hang":
            time.sleep(600)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "refuses":
            raise RecordingError("the GPU is gone")
        if fault == "broken":
            return {"status": "runtime_error", "message": "illegal access", "broken": True}
        time_ms = code_ms(task["path"])
        quartiles = {"low_ms": time_ms, "high_ms": time_ms, "launches": 5}
        return {"status": "ok", "time_ms": time_ms, "benchmark_s": 0.01, **quartiles}

    def note(self, line: Mapping[str, Any]) -> None:
        with (self.folder / "timings.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def timings(folder: Path) -> list[dict[str, Any]]:
    """What was timed, in order: one ``path``, or ``paths`` side by side."""
    path = folder / "timings.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class HashedCompile:
    """Code is a hash of the configuration: nothing is imported to make it."""

    folder: Path

    def run(self, channel: Channel) -> None:
        channel.serve({}, self.handle)

    def handle(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        source = code_of(config)
        path = str(self.folder / f"{source}.py")
        return {"status": "ok", "compile_s": 0.01, "source": source, "path": path}


def code_of(config: Mapping[str, Any]) -> str:
    """The name of the code that `HashedCompile` makes of a configuration."""
    return hashlib.sha256(repr(sorted(config.items())).encode()).hexdigest()[:16]


def formula_stages_on_node(
    trail_folder: Path,
    faults: Mapping[int, str],
    slow_s: float,
    script: Any,
    shape: str | None,
    compilers: int,
    folder: Path,
) -> tuple[list[Any], list[Any]]:
    """In the place of a node's stages for a kernel's script, which must be there."""
    del shape
    script.here()
    timing = FormulaTiming(trail_folder, trail_folder, faults, slow_s)
    return [HashedCompile(folder)] * compilers, [timing]


def read_again(folder: Path) -> list[list[str]]:
    """Paths of the code that was read side by side, each time."""
    return [line["paths"] for line in timings(folder) if "paths" in line]
