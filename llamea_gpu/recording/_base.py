"""What the recorders of all frameworks share: settings, how far one is, how it ended.

The descriptions of settings are the help of the options of ``llamea-gpu spaces record``. It imports
no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pydantic.dataclasses
from pydantic import Field

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import Value

# What a device cannot launch at all (too many threads): no configuration of its space.
LEFT_OUT = "invalid"
HOPELESS = 100  # failures without one success: a compiler, a reference or a device is wrong


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """What is set of a recorder, whatever the framework."""

    seconds: float | None = Field(
        None, description="End in order after this time; the same command continues."
    )
    seed: int = Field(0, ge=0, description="Of the order of measuring, and of what is drawn.")
    name: str | None = Field(None, description="The recording's name; default: the kernel's.")
    command: str = Field("", description="How it was called; kept in the recording.")
    cluster: str = Field(
        "",
        description="'ray', HOST:PORT or ray://HOST:PORT: all GPUs of a Ray cluster, no others.",
    )
    gpu: str = Field("", description="With --cluster: the kind of GPU, as Ray names it (H100).")


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelTunerSettings(RecordSettings):
    """How to record a Kernel Tuner kernel.

    What uses a device (checking and timing) its processes do one after another. On a cluster
    ``devices`` is only how many they are. ``sizes`` are arguments of the script's function; the
    rest keep their defaults.
    """

    devices: tuple[int, ...] = Field(
        (0,), description="Device number; several, all of one kind, share the work."
    )
    compilers: int = Field(1, description="Compile this many side by side on each device.")
    backend: str | None = Field(
        None, description="CUDA, CUPY, NVCUDA, HIP, C, ...; default: the script's."
    )
    iterations: int = Field(7, description="Timed runs of a configuration; their mean counts.")
    timeout_s: float = Field(60.0, description="Seconds for one configuration.")
    sample: int | None = Field(
        None, description="Measure a stratified sample of this size; default: all."
    )
    sizes: Mapping[str, Value] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_positive(
            seconds=self.seconds,
            compilers=self.compilers,
            iterations=self.iterations,
            timeout_s=self.timeout_s,
            sample=self.sample,
            devices=len(self.devices),
        )
        _require_cluster_of(self)
        if len(set(self.devices)) < len(self.devices):
            raise RecordingError(f"devices must be distinct, but got {self.devices}")


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HelionSettings(RecordSettings):
    """What to record of a Helion kernel, and how. On a cluster, ``compilers`` are of each GPU."""

    grid: Path | None = Field(None, description="Grid file; default: propose one.")
    auto: int = Field(2000, description="Most points of a proposed grid.")
    partial: bool = Field(
        False, description="With --seconds: write what is measured by then as a recording."
    )
    shape: str | None = Field(None, description="One of the script's shapes; default: its usual.")
    compilers: int | None = Field(None, description="Compiling processes; default: the free cores.")
    devices: tuple[int, ...] | None = Field(
        None, description="GPU number, all of one kind; default: all GPUs."
    )
    compile_timeout_s: float = Field(
        30.0, description="Seconds to compile one; with --whole 12, unless given."
    )
    timing_timeout_s: float = Field(
        30.0, description="Seconds to time one; with --whole 10, unless given."
    )

    def __post_init__(self) -> None:
        _require_positive(
            seconds=self.seconds,
            compilers=self.compilers,
            compile_timeout_s=self.compile_timeout_s,
            timing_timeout_s=self.timing_timeout_s,
        )
        _require_cluster_of(self)
        if self.cluster and self.devices is not None:
            raise RecordingError(
                f"on a cluster all GPUs of a kind are used, but got devices {self.devices}: leave "
                f"them out"
            )


def _require_cluster_of(settings: RecordSettings) -> None:
    if settings.gpu and not settings.cluster:
        raise RecordingError(
            f"a kind of GPU is chosen of a cluster's, but got {settings.gpu!r} and no cluster: "
            f"name one with --cluster, or leave out --gpu"
        )


def _require_positive(**limits: float | None) -> None:
    wrong = {name: limit for name, limit in limits.items() if limit is not None and not limit > 0}
    if wrong:
        raise RecordingError(f"counts and limits must be > 0, but got {wrong}")


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """Counts of configurations, and seconds; ``left_s`` is None as long as nobody can tell."""

    done: int
    total: int
    failed: int
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """How a call ended.

    Attributes:
        recording: what was written; None when the time was up first.
        journal: the journal, which is gone once everything is recorded.
        done, total: configurations measured, those of earlier calls included, and wanted.
        measured: by this call; measured_s: seconds from its first result to its last.
        elapsed_s: of the whole call, starting included.
    """

    recording: Recording | None
    journal: Path
    done: int
    total: int
    measured: int
    measured_s: float
    elapsed_s: float


class Tracker:
    """Counts what is measured, and tells of it; the time left is estimated from this call's pace.

    ``done`` and ``failed`` count earlier calls, too, ``measured`` is this call's; ``worked`` says
    whether anything ever did.
    """

    def __init__(
        self, progress: Callable[[RecordProgress], None], start: float, total: int
    ) -> None:
        self._progress, self._start, self._total = progress, start, total
        self.done = self.failed = self.measured = 0
        self.worked = False
        self._began = monotonic()
        self._first = self._last = 0.0

    @property
    def measured_s(self) -> float:
        """Seconds from the first result of this call to its last."""
        return self._last - self._first

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of this call to its last result, or until now."""
        return (self._last or monotonic()) - self._start

    def resume(self, statuses: Iterable[str]) -> None:
        """Count what earlier calls measured."""
        for status in statuses:
            self._count(status)

    def add(self, status: str) -> None:
        """Count a result of this call."""
        self._last = monotonic()
        self._first = self._first or self._last
        self.measured += 1
        self._count(status)

    def report(self) -> None:
        """Tell how far it is."""
        left_s = None
        if self.measured:
            between_s = self.measured_s / (self.measured - 1) if self.measured > 1 else 0.0
            left_s = (self._total - self.done) * (between_s or self._last - self._began)
        self._progress(RecordProgress(self.done, self._total, self.failed, self.elapsed_s, left_s))

    def require_hope(self, most: int, status: str, message: object) -> None:
        """RecordingError when ``most`` have failed and none worked; with the last one's failure."""
        if not self.worked and self.failed >= most:
            raise RecordingError(
                f"a kernel must work for some configurations, but all {self.failed} so far failed, "
                f"the last with {status}: {message}"
            )

    def outcome(self, recording: Recording | None, journal: Path) -> RecordOutcome:
        """How a call ended, with what it has written."""
        return RecordOutcome(
            recording,
            journal,
            self.done,
            self._total,
            self.measured,
            self.measured_s,
            monotonic() - self._start,
        )

    def _count(self, status: str) -> None:
        self.done += 1
        self.worked |= status == "ok"
        self.failed += status not in ("ok", LEFT_OUT)
