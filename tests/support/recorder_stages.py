"""Stages that behave as their tasks say: they sleep, fail, hang, crash, and leave a trail of it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamea_gpu.engine.worker import Channel, Handler, Stage
from llamea_gpu.errors import RecordingError

if TYPE_CHECKING:
    from llamea_gpu.engine.pipeline import Pipeline
    from llamea_gpu.recording._base import HelionSettings

FACTS = {
    "capability": "9.0",
    "multiprocessors": 132,
    "cuda": "13.0",
    "default_ms": 1.5,
    "reference_ms": 2.5,
    "relative_error": 0.001,
}


class _Served(Channel):
    """A channel that answers given tasks, in this process."""

    def __init__(self, tasks: Iterable[Any]) -> None:
        self.facts: Mapping[str, Any] = {}
        self.results: list[Mapping[str, Any]] = []
        self._tasks = tasks

    def serve(self, facts: Mapping[str, Any], handle: Handler) -> None:
        self.facts = facts
        self.results = [dict(handle(task)) for task in self._tasks]


def served(
    stage: Stage, tasks: Iterable[Any] = ()
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """A stage's facts and its results, from this process."""
    channel = _Served(tasks)
    stage.run(channel)
    return channel.facts, channel.results


@dataclass(frozen=True)
class FakeStage:
    """``kind`` is "compile" or "time"; a task's ``KIND`` entry says what happens there.

    ok, error; refused (does not compile); hang; crash; crash-once; broken. Everything else a task
    holds is passed on. ``phases`` are names with seconds that it goes through first. With ``start``
    "crash" it does not open, with "crash-later" only once, with "hang-later" it hangs then.
    """

    kind: str
    folder: Path
    seconds: float = 0.0
    refuses: str = ""
    start: str = "ok"
    imports: str = ""

    def run(self, channel: Channel) -> None:
        if self.refuses:
            time.sleep(self.seconds)
            raise RecordingError(self.refuses)
        opened = any(line["kind"] == self.kind for line in trail(self.folder))
        if self.start == "crash" or (self.start == "crash-later" and opened):
            raise ValueError("no such library")
        if self.start == "hang-later" and opened:
            time.sleep(600)
        if self.imports:
            importlib.import_module(self.imports)
        self.note("open", {})
        channel.serve(FACTS, partial(self.handle, channel))

    def handle(self, channel: Channel, task: Mapping[str, Any]) -> Mapping[str, Any]:
        task = {"x": 0, **task}
        behaviour = task.get(self.kind, "ok")
        began = time.monotonic()
        self.note("begin", task)
        time.sleep(self.seconds)
        for name, seconds in task.get("phases", ()):
            channel.phase(name)
            time.sleep(seconds)
        if behaviour == "refused":
            return {"status": "compile_error", "message": "refused"}
        if behaviour == "hang":
            time.sleep(600)
        marker = self.folder / f"{self.kind}-{task['x']}.crashed"
        if behaviour == "crash" or (behaviour == "crash-once" and not marker.exists()):
            marker.touch()
            print("last words of a compiler", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "raise":
            raise ValueError("a bug")
        self.note("end", task, began=began)
        if self.kind == "compile":
            if behaviour == "error":
                return {"status": "compile_error", "message": "refused", "compile_s": 0.25}
            source = task.get("code", f"code-{task['x']}")
            return {"status": "ok", "compile_s": 0.5 + task["x"], "source": source, **task}
        if behaviour == "error":
            return {"status": "incorrect", "message": "wrong", "benchmark_s": 0.125}
        if behaviour == "broken":
            return {"status": "runtime_error", "message": "illegal access", "broken": True}
        time_ms = 1.0 + task["x"]
        quartiles = {"low_ms": time_ms * 0.99, "high_ms": time_ms * 1.01}
        told = {key: task[key] for key in ("give_up_ms",) if key in task}
        return {"status": "ok", "time_ms": time_ms, "benchmark_s": 0.25, **quartiles, **told}

    def note(self, event: str, task: Mapping[str, Any], began: float = 0.0) -> None:
        line = {
            "kind": self.kind,
            "event": event,
            "pid": os.getpid(),
            "x": task.get("x"),
            "began": began,
            "at": time.monotonic(),
        }
        with (self.folder / "trail.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class PretendedStage:
    """A stage of a GPU that is not there."""

    stage: Stage
    gpu: str

    def run(self, channel: Channel) -> None:
        """As the stage that it holds."""
        from llamea_gpu.frameworks.helion.static import pretend_gpu

        with pretend_gpu(self.gpu):
            self.stage.run(channel)


def trail(folder: Path) -> list[dict[str, Any]]:
    """What the stages did, in order."""
    path = folder / "trail.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def opened(
    compiling: Sequence[FakeStage],
    timing: Sequence[FakeStage],
    how: HelionSettings,
    logs: Path,
) -> Pipeline:
    """These stages in processes, with the limits of a recorder."""
    # Not above: the processes that run the stages import this module.
    from llamea_gpu.engine.pipeline import Pipeline
    from llamea_gpu.recording.helion.record import limits_of

    return Pipeline(compiling, timing, logs, limits_of(how))


def fake_engine(
    trail_folder: Path, seconds: float, refuses: str, folder: Path
) -> tuple[list[Stage], list[Stage]]:
    """Stages of the engine of one GPU, two of them compiling; their trail is in one place."""
    assert folder.is_dir()
    compiling = FakeStage("compile", trail_folder, seconds)
    return [compiling] * 2, [FakeStage("time", trail_folder, seconds, refuses)]


def fake_stages_on_node(
    trail_folder: Path, seconds: float, script: Any, shape: str, compilers: int, folder: Path
) -> tuple[list[Stage], list[Stage]]:
    """In the place of those of a kernel's script, which must be there."""
    assert script.here().is_file()
    assert shape
    compiling, timing = fake_engine(trail_folder, seconds, "", folder)
    return compiling[:1] * compilers, timing
