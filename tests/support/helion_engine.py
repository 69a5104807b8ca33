"""Live tuning on the engine without a GPU: compiled for a pretended one, timed by a formula."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Channel
from llamea_gpu.frameworks.helion.stages import Compiler
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.live.helion.journal import JournalRequest
from llamea_gpu.live.helion.pipelined import PipelinedSearch, make_evaluate
from llamea_gpu.live.helion.provider import PipelinedProvider
from llamea_gpu.live.helion.runtime import helion_search

COMPILERS = 2


def code_ms(path: str) -> float:
    """The time of generated code: by its name, which is a hash of it."""
    return 0.01 + int(Path(path).stem[:6], 16) / (1 << 24)


@dataclass(frozen=True)
class FormulaTiming:
    """Times by `code_ms`, leaves a trail in ``folder``, and fails as ``faults`` says.

    ``faults`` names what happens to the n-th timing of all: hang, crash, broken. With ``slow_s``
    each takes so long.
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
        if fault == "broken":
            return {"status": "runtime_error", "message": "illegal access", "broken": True}
        time_ms = code_ms(task["path"])
        quartiles = {"low_ms": time_ms, "high_ms": time_ms, "launches": 5}
        return {"status": "ok", "time_ms": time_ms, "benchmark_s": 0.01, **quartiles}

    def note(self, line: Mapping[str, Any]) -> None:
        with (self.folder / "timings.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class HereCompile:
    """As `BoundCompileStage`, in forks of a process that pretends a GPU already."""

    bound: Any
    arguments: Sequence[Any]
    folder: Path

    def run(self, channel: Channel) -> None:
        (self.folder / f"compiler-{os.getpid()}").touch()
        gpu = FakeArguments()
        name = self.bound.kernel.name
        fakes = gpu.like(tuple(self.arguments))
        channel.serve({}, Compiler(gpu, self.bound, name, fakes, self.folder))


class EngineProvider(PipelinedProvider):
    """The provider with everything real but the GPU."""

    trail: ClassVar[Path]
    faults: ClassVar[Mapping[int, str]] = {}
    slow_s: ClassVar[float] = 0.0

    def __init__(self, **given: Any) -> None:
        super().__init__(compilers=COMPILERS, **given)

    def _compute_baseline(self) -> Any:
        return None, [], None

    def _timing_template(self) -> Template:
        return self._closing.enter_context(Template((), self._folder / "template.log"))

    def _timing_stage(self, name: str, device: Any) -> Any:
        return FormulaTiming(self.trail, self._folder / "data", self.faults, self.slow_s)

    def _compile_stage(self) -> Any:
        return HereCompile(self.kernel, self.args, self._folder)

    def _give_arguments(self) -> None:
        (self._folder / "data").touch()


def provider_in(folder: Path, **attributes: Any) -> type[EngineProvider]:
    """An `EngineProvider` with its trail in ``folder``."""
    return type("Provider", (EngineProvider,), {"trail": folder, **attributes})


def engine_search(
    live: tuple[Any, Any], run: Any, journal: Path | None = None, **options: Any
) -> PipelinedSearch:
    """A search on the engine whose optimizer is ``run(evaluate, space, rng)``."""
    request = None if journal is None else JournalRequest(journal, "written", "medium")
    evaluate = partial(make_evaluate, journal=request)
    found = helion_search("Written", lambda: run, {}, "0", evaluate, PipelinedSearch)
    return found(*live, **options)


def timings(folder: Path) -> list[dict[str, Any]]:
    """What was timed, in order: one ``path``, or ``paths`` side by side."""
    path = folder / "timings.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def timed(folder: Path) -> list[str]:
    """Names of the code that was timed, in order; not those that were read again."""
    return [Path(line["path"]).stem for line in timings(folder) if "path" in line]


def read_again(folder: Path) -> list[list[str]]:
    """Names of the code that was read side by side, each time."""
    return [[Path(p).stem for p in line["paths"]] for line in timings(folder) if "paths" in line]
