"""Live tuning on the engine without a GPU: compiled for a pretended one, timed by a formula."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Channel
from llamea_gpu.frameworks.helion.stages import Compiler
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.live.helion.engine import KernelEngine
from llamea_gpu.live.helion.journal import JournalRequest
from llamea_gpu.live.helion.pipelined import PipelinedSearch, make_evaluate
from llamea_gpu.live.helion.provider import PipelinedProvider
from llamea_gpu.live.helion.runtime import helion_search
from support.formula_timing import FormulaTiming, timings
from support.helion_live import run_search

COMPILERS = 2


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


class PretendedEngine(KernelEngine):
    """The engine with everything real but the GPU."""

    def __init__(self, provider: type[EngineProvider], *given: Any) -> None:
        self._provider = provider
        super().__init__(*given)

    def timing_template(self) -> Template:
        return self._closing.enter_context(Template((), self.folder / "template.log"))

    def timing_stage(self) -> Any:
        provider = self._provider
        data = self.folder / "data"
        return FormulaTiming(provider.trail, data, provider.faults, provider.slow_s)

    def compile_stage(self) -> Any:
        return HereCompile(self.kernel, self.arguments, self.folder)

    def give_arguments(self) -> None:
        """Those of a pretended GPU cannot be copied."""

    def give_what_is_right(self, *_: Any) -> None:
        (self.folder / "data").touch()

    def reference(self) -> Any:
        """None that has run in this process."""


class EngineProvider(PipelinedProvider):
    """The provider on a `PretendedEngine`."""

    trail: ClassVar[Path]
    faults: ClassVar[Mapping[int, str]] = {}
    slow_s: ClassVar[float] = 0.0
    baseline: ClassVar[Any] = staticmethod(lambda folder: None)

    def __init__(self, **given: Any) -> None:
        super().__init__(compilers=COMPILERS, **given)

    def make_engine(self, *given: Any) -> KernelEngine:
        return PretendedEngine(type(self), *given)

    def cleanup(self) -> None:
        self.queued = self._engine._submitted
        super().cleanup()

    def _compute_baseline(self) -> Any:
        self.baseline(self._engine.folder)
        return None, [], None


def provider_in(folder: Path, **attributes: Any) -> type[EngineProvider]:
    """An `EngineProvider` with its trail in ``folder``, and others of its class's attributes."""
    return type("Provider", (EngineProvider,), {"trail": folder, **attributes})


def engine_search(
    live: tuple[Any, Any], run: Any, journal: Path | None = None, **options: Any
) -> PipelinedSearch:
    """A search on the engine whose optimizer is ``run(evaluate, space, rng)``."""
    request = None if journal is None else JournalRequest(journal, "written", "medium")
    evaluate = partial(make_evaluate, journal=request)
    found = helion_search("Written", lambda: run, {}, "0", evaluate, PipelinedSearch)
    return found(*live, **options)


def run_on_engine(search: PipelinedSearch, provider: type[EngineProvider]) -> Any:
    """The configuration that a search returns."""
    return run_search(search, partial(provider, expected=search.starts))


def timed(folder: Path) -> list[str]:
    """Names of the code that was timed, in order; not those that were read again."""
    return [Path(line["path"]).stem for line in timings(folder) if "path" in line]


def read_again(folder: Path) -> list[list[str]]:
    """Names of the code that was read side by side, each time."""
    return [[Path(p).stem for p in line["paths"]] for line in timings(folder) if "paths" in line]
