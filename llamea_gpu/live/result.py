"""What a tuning run is asked for, what it tells meanwhile, and what comes of it.

Frozen data and its JSON, and the clock of a live run; not here: how any framework measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import pydantic.dataclasses
from pydantic import Field

from llamea_gpu.errors import SearcherError
from llamea_gpu.spaces.space import Value

TOP = 10


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class TuneSettings:
    """How to tune; the descriptions are the help of the options of ``llamea-gpu tune``.

    A setting that a framework does not have is ignored by it. With neither ``evaluations`` nor
    ``seconds``, each kind of kernel has a default.
    """

    evaluations: int | None = Field(None, description="Configurations to measure at most.")
    seconds: float | None = Field(None, description="Time to tune; of a recording simulated.")
    seed: int = Field(1, ge=0, description="Of the searcher.")
    device: int = Field(0, ge=0, description="Number of the GPU.")
    shape: str | None = Field(None, description="Helion: one of the script's shapes.")
    effort: str = Field("full", description="Helion: 'quick' or 'full'.")
    engine: Literal["pipelined", "framework"] = Field(
        "pipelined",
        description="Compile and time side by side, or as the framework itself does ('framework').",
    )
    cluster: str = Field(
        "",
        description="Measure on all GPUs of a Ray cluster: 'ray', HOST:PORT or ray://HOST:PORT.",
    )
    gpu: str = Field("", description="With --cluster: the kind of GPU, as Ray names it (H100).")
    journal: Path | None = Field(
        None,
        description="Keep each measurement in this file as it comes; where it has some already, "
        "go on from there. Helion: with the engine 'pipelined'.",
    )
    backend: str | None = Field(None, description="Kernel Tuner: instead of the script's lang.")
    iterations: int = Field(7, description="Kernel Tuner: timed runs of a configuration.")
    clock: str = Field(
        "",
        description="'sequential', 'parallel(W)' or 'pipelined(W)'; default: the recording's own.",
    )
    cpu_s: float | None = Field(
        None, ge=0.1, le=86_400, description="Recording: CPU seconds of the searcher."
    )
    unsafe: bool = Field(
        False, description="Run untrusted code without isolation (disposable VMs only)."
    )
    starts: tuple[Mapping[str, Any], ...] = Field(
        default=(),
        description="Helion: configurations that are measured before the searcher begins.",
    )
    sizes: Mapping[str, Value] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = {"evaluations": self.evaluations, "seconds": self.seconds}
        wrong = {k: v for k, v in limits.items() if v is not None and not 0 < v < math.inf}
        if wrong or self.iterations < 1:
            raise SearcherError(
                f"budgets and iterations must be positive and finite, but got "
                f"{wrong or self.iterations}"
            )
        if self.effort not in ("quick", "full"):
            raise SearcherError(f"effort must be quick or full, but got {self.effort!r}")
        if self.gpu and not self.cluster:
            raise SearcherError(
                f"a kind of GPU is chosen of a cluster's, but got {self.gpu!r} and no cluster: "
                f"name one with --cluster, or leave out --gpu"
            )


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """Where a run is: ``best_ms`` is inf until something works; ``elapsed_s`` of wall time."""

    measured: int
    failed: int
    best_ms: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A configuration and its time in ms, inf where it failed; ``elapsed_s`` is when it was known.

    Configurations of a batch are known when the batch is.
    """

    configuration: Mapping[str, Any]
    time_ms: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What a run came to.

    Attributes:
        searcher: the spec; framework, kernel, device: what was tuned.
        seed: of the run; clock: ``wall``, or the simulated one.
        measured: in the order of first visits; times of the best ones as they were last read.
        best: the framework's final choice; None when nothing worked.
        default_ms: of the configuration that the kernel ships with, where it is known.
        optimum_ms: of a recording, the best of all.
        elapsed_s: until the end.
        code: the best configuration to paste, in the framework's language.
        trouble: what the run went on in spite of; empty for nothing.
        start_s: where the first seconds went, where that is known: by step, since the beginning,
            or seconds of a step of its own (with "timing" before its name).
    """

    searcher: str
    framework: str
    kernel: str
    device: str
    seed: int
    clock: str
    measured: tuple[Measured, ...]
    best: Measured | None
    default_ms: float | None
    elapsed_s: float
    code: str
    trouble: str = ""
    optimum_ms: float | None = None
    start_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Configurations that did not work."""
        return sum(not math.isfinite(each.time_ms) for each in self.measured)

    def top(self, count: int = TOP) -> tuple[Measured, ...]:
        """The best that were measured, the framework's choice first."""
        working = sorted(
            (each for each in self.measured if math.isfinite(each.time_ms)),
            key=lambda each: (each != self.best, each.time_ms),
        )
        return tuple(working[:count])

    def document(self, count: int = TOP) -> dict[str, Any]:
        """The result as JSON; a time is null where a configuration failed."""
        return {
            "searcher": self.searcher,
            "framework": self.framework,
            "kernel": self.kernel,
            "device": self.device,
            "seed": self.seed,
            "clock": self.clock,
            "elapsed_s": self.elapsed_s,
            "evaluations": len(self.measured),
            "failed": self.failed,
            "default_ms": self.default_ms,
            "optimum_ms": self.optimum_ms,
            "best": None if self.best is None else _document(self.best),
            "top": [_document(each) for each in self.top(count)],
            "trace": [
                {"elapsed_s": each.elapsed_s, "time_ms": _finite(each.time_ms)}
                for each in self.measured
            ],
            "code": self.code,
            "trouble": self.trouble,
            "start_s": dict(self.start_s),
        }


def params_code(configuration: Mapping[str, Value]) -> str:
    """A configuration for ``kernel_tuner.run_kernel``."""
    items = "".join(f"    {name!r}: {value!r},\n" for name, value in configuration.items())
    return f"params = {{\n{items}}}"


def _document(each: Measured) -> dict[str, Any]:
    return {"time_ms": _finite(each.time_ms), "configuration": dict(each.configuration)}


def _finite(time_ms: float) -> float | None:
    return time_ms if math.isfinite(time_ms) else None


class Watch:
    """A live run's clock and progress; ``progress`` is told after each batch.

    ``before_s`` are seconds of earlier parts of the run, which count.
    """

    def __init__(self, progress: Callable[[TuneProgress], None]) -> None:
        self._progress = progress
        self.before_s = 0.0
        self._start = monotonic()
        self._marks: list[tuple[int, float]] = []  # so many were known at that second

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.before_s + monotonic() - self._start

    def note(self, times_ms: Sequence[float]) -> None:
        """Take in all times so far, in the order of first visits; inf is a failure."""
        if self._marks and len(times_ms) == self._marks[-1][0]:  # it asked for what is known
            return
        elapsed_s = self.elapsed_s
        self._marks.append((len(times_ms), elapsed_s))
        self._progress(
            TuneProgress(
                measured=len(times_ms),
                failed=sum(map(math.isinf, times_ms)),
                best_ms=min(times_ms, default=math.inf),
                elapsed_s=elapsed_s,
            )
        )

    def known_at(self, place: int) -> float:
        """When the configuration at that place of the order was known, in seconds."""
        return next((s for count, s in self._marks if count > place), self.elapsed_s)
