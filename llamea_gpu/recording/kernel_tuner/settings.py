"""How a live kernel is to be recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.space import Value


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """How to record.

    Attributes:
        devices: device numbers, all of one kind; configurations are shared among them.
        compilers: processes for each device. They compile side by side; what uses the device
            (checking and timing) they do one after another.
        backend: overrides the script's ``lang`` (CUPY, NVCUDA, CUDA, HIP, C, ...).
        iterations: timed runs of each configuration; the time is their mean.
        timeout_s: a configuration that takes longer is stopped and recorded as ``timeout``.
        sample: number of configurations; None means all valid ones.
        seed: of the sample and of the order of measuring.
        max_seconds: end in order after this time; the same call continues later.
        sizes: of the problem: arguments of the script's function; the rest keep their defaults.
        name: the recording's name; None means the script's.
        command: what a person types to do this again; kept in the recording.
        cluster: record on all GPUs of this cluster (:mod:`llamea_gpu.cluster`), of the kind ``gpu``
            where it has several. ``devices`` is then only how many they are.
    """

    devices: tuple[int, ...] = (0,)
    compilers: int = 1
    backend: str | None = None
    iterations: int = 7
    timeout_s: float = 60.0
    sample: int | None = None
    seed: int = 0
    max_seconds: float | None = None
    sizes: Mapping[str, Value] = field(default_factory=dict)
    name: str | None = None
    command: str = ""
    cluster: str = ""
    gpu: str = ""

    def __post_init__(self) -> None:
        limits = {
            "compilers": self.compilers,
            "iterations": self.iterations,
            "timeout_s": self.timeout_s,
            "sample": 1 if self.sample is None else self.sample,
            "max_seconds": 1 if self.max_seconds is None else self.max_seconds,
            "number of devices": len(self.devices),
        }
        wrong = {name: value for name, value in limits.items() if not value > 0}
        if wrong or len(set(self.devices)) != len(self.devices):
            raise RecordingError(
                f"counts and limits must be > 0 and devices distinct, but got "
                f"{wrong or self.devices}"
            )
