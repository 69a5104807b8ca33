"""What one ``tune_kernel`` call measures, handed to other processes.

What it does: takes a call apart from within its strategy, writes it to a file that all processes
share in memory (arrays are mapped, each process writes to pages of its own), and measures in one.

What it does not do: hand over observers, arrays that only live here, or a way of tuning.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from llamea_gpu.cluster.engine import Stages
from llamea_gpu.engine.worker import Channel
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.kernel_tuner.stage import measure

BACKENDS = {"CUDA", "CUPY", "NVCUDA", "PYCUDA"}
# Of a kernel's options and a run's, those that say what is measured.
_KERNEL = (
    *("problem_size", "arguments", "grid_div_x", "grid_div_y", "grid_div_z", "smem_args"),
    *("cmem_args", "texmem_args", "block_size_names", "defines"),
)
_RUN = ("answer", "atol", "verify")
_ALIGNED = 64  # bytes: where arrays begin


def why_not(runner: Any) -> str:
    """Why the measurements of a runner of Kernel Tuner's cannot be handed over; empty if they can.

    Whether they can be written, :func:`save_call` finds out.
    """
    from kernel_tuner.runners.sequential import SequentialRunner

    if type(runner) is not SequentialRunner:
        return f"a {type(runner).__name__} measures in its own way"
    language = str(runner.kernel_source.lang).upper()
    if language not in BACKENDS:
        return f"kernels in {language} are measured in this process, those in CUDA in others"
    # Its backend has one of its own.
    if len(runner.dev.dev.observers) > 1 or runner.dev.prologue_observers:
        return "observers live in this process"
    return ""


def call_of(searchspace: Any, runner: Any, options: Any) -> dict[str, Any]:
    """Arguments of ``tune_kernel`` that measure as this runner does, on a space of its own: of one
    configuration, so that no process builds it again.
    """
    kernel, backend = runner.kernel_source, runner.dev.dev
    source = kernel.kernel_sources
    first = zip(searchspace.tune_params, searchspace.list[0], strict=True)
    return {
        "kernel_name": kernel.kernel_name,
        "kernel_source": source if len(source) > 1 else source[0],
        "lang": kernel.lang,
        "tune_params": {name: [value] for name, value in first},
        "device": _device(backend),
        "iterations": runner.dev.iterations,
        "compiler": getattr(backend, "compiler", None),
        "compiler_options": getattr(backend, "compiler_options", None),
        "quiet": True,
        **{name: runner.kernel_options[name] for name in _KERNEL},
        **{name: options[name] for name in _RUN},
    }


@contextmanager
def shared_file(folder: Path) -> Iterator[Path]:
    """A file that is in memory, and nowhere once all who use it are gone, however they end.

    Where the system has none, one in ``folder``.
    """
    if not hasattr(os, "memfd_create"):
        yield folder / "call"
        return
    number = os.memfd_create("llamea-gpu-call")
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{number}")
    finally:
        os.close(number)


def save_call(path: Path, call: Mapping[str, Any]) -> int:
    """Write a call; returns the bytes of its arrays.

    Raises:
        Exception: whatever something that cannot be pickled raises.
    """
    buffers: list[pickle.PickleBuffer] = []
    pickled = cloudpickle.dumps(dict(call), protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    with path.open("wb") as file:
        pickle.dump([len(pickled), *(array.nbytes for array in arrays)], file)
        for part in (pickled, *arrays):
            file.write(bytes(-file.tell() % _ALIGNED))
            file.write(part)
    return sum(array.nbytes for array in arrays)


def load_call(path: Path) -> dict[str, Any]:
    """Read what :func:`save_call` wrote: a file of this program's own."""
    with path.open("rb") as file:
        sizes = pickle.load(file)  # noqa: S301 - of our own
        at = file.tell()
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    parts = []
    for size in sizes:
        at += -at % _ALIGNED
        parts.append(mapped[at : at + size])
        at += size
    call: dict[str, Any] = pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - of our own
    return call


@dataclass(frozen=True, slots=True)
class HandedStage:
    """Measure configurations of a call; a task is a configuration's values.

    Attributes:
        call: the file; lock: held by whoever uses the device.
        folder: the current one of the process that called ``tune_kernel``.
        environment, path: its environment variables and ``sys.path``.
    """

    call: Path
    lock: Path
    folder: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        os.environ.update(self.environment)
        sys.path[:] = self.path
        os.chdir(self.folder)
        warnings.simplefilter("ignore")  # the calling process has been warned
        try:
            call = load_call(self.call)
        except Exception as error:  # what unpickling imports may raise whatever it likes
            message = f"the kernel's arguments must load: {type(error).__name__}: {error}"
            raise RecordingError(message) from error
        call["device"] = see_only(call["device"])
        measure(channel, call, self.lock)


def see_only(device: int) -> int:
    """Have CUDA, before it starts in this process, see this GPU and no other: it starts sooner.

    Returns:
        What the GPU's number is then; ``device`` where it is none of those that are visible.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(device)] if visible is None else visible.split(",")
    place = 0 if visible is None else device
    if not 0 <= place < len(names) or not names[place].strip():
        return device
    os.environ["CUDA_VISIBLE_DEVICES"] = names[place].strip()
    return 0


def call_on_node(saved: bytes, processes: int, folder: Path) -> Stages:
    """Stages that measure a saved call in the engine of one GPU of a cluster."""
    call = folder / "call"
    call.write_bytes(saved)
    return [HandedStage(call, folder / "device", folder)] * processes, ()


def _device(backend: Any) -> int:
    """Number of the device that a backend uses, whatever it calls it."""
    for name in ("device", "dev", "last_selected_device"):
        device = getattr(backend, name, None)
        if device is not None:
            return int(getattr(device, "id", device))
    return 0
