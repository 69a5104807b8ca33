"""The engine of one GPU, as an actor on the node that has it; and what says how to make one.

Ray gives an actor its GPU alone (``CUDA_VISIBLE_DEVICES``), starts it anew elsewhere when its node
or process is lost, and ends it with the driver. Within it goes on what goes on at one machine:
:class:`llamea_gpu.engine.pipeline.Pipeline`, which kills what hangs and starts anew what crashes.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.cluster.connection import import_ray
from llamea_gpu.cluster.facts import Examined, Facts, installed, software
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Stage
from llamea_gpu.errors import RecordingError

KIND = "GPU"
DEVICE = 0  # as an actor counts the one GPU that it sees

Stages = tuple[Sequence[Stage], Sequence[Stage]]


@dataclass(frozen=True, slots=True)
class Script:
    """A kernel's script, which every node must have where the driver has it."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Script:
        """The one of this machine."""
        return cls(path.absolute(), _digest(path))

    def here(self) -> Path:
        """Its path.

        Raises:
            RecordingError: this node lacks it, or has another one.
        """
        digest = _digest(self.path) if self.path.is_file() else ""
        if digest != self.digest:
            raise RecordingError(
                f"every node must have the driver's script, but here {self.path} "
                f"{'is another one' if digest else 'is missing'}: use a folder that all nodes "
                f"share, or copy it to the same place"
            )
        return self.path


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What the engine of one GPU is made of; picklable.

    Attributes:
        build: called on the node with a folder of the engine's own; returns the stages of its
            compiling processes and of its timing process (none: the first do everything), for the
            GPU `DEVICE`.
        limits: after which processes are killed.
        preload: modules that the processes are forked with.
        exclusive: hold the GPU against other recorders on its node.
        versions: of the packages that a node must have.
        environment: variables that its processes are started with.
        options: further arguments of `Pipeline`. What they compare (equal code, the best time) is
            of one GPU.
    """

    build: Callable[[Path], Stages]
    limits: Limits
    preload: tuple[str, ...] = ()
    exclusive: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine that is ready: where it is, and what its stage reported. Or why it is not."""

    where: Examined
    facts: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of work of its own kind that an engine was asked to do, or why it cannot."""

    result: Any = None
    refused: str = ""


class GpuEngine:
    """The actor. Its methods are called one after another, in its main thread."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._stack = ExitStack()
        self._pipeline: Pipeline | None = None

    def open(self, expected: Facts) -> Opened:
        """Be ready, with nothing to do, on a node that is as ``expected``."""
        examined = self._examined()
        try:
            if why := examined.unlike(expected):
                return Opened(examined, refused=f"it differs: {why}")
            if self._pipeline is None:
                self._pipeline = self._started()
            self._pipeline.drop()  # of a driver that had lost sight of this engine
            self._pipeline.wait(monotonic())
            (facts,) = self._pipeline.facts()[:1]
        except RecordingError as error:
            return Opened(examined, refused=str(error))
        return Opened(examined, facts)

    def work(self, tasks: Sequence[Task], wait_s: float) -> Sequence[Outcome] | str:
        """Queue ``tasks``; outcomes, as soon as there are any or after ``wait_s``.

        A text says why nothing can be measured here.
        """
        assert self._pipeline is not None
        try:
            self._pipeline.submit(tasks)
            return self._pipeline.wait(monotonic() + wait_s)
        except RecordingError as error:
            return str(error)

    def drop(self) -> Sequence[Outcome]:
        """Forget what is not finished; what is."""
        assert self._pipeline is not None
        self._pipeline.drop()
        return self._pipeline.wait(monotonic())

    def forget(self) -> Sequence[Outcome]:
        """As :meth:`drop`, but what a process is at is finished, and then of no interest."""
        assert self._pipeline is not None
        self._pipeline.forget()
        return self._pipeline.wait(monotonic())

    def do(self, work: Callable[[Pipeline], Any]) -> Done:
        """What ``work`` makes of the pipeline."""
        assert self._pipeline is not None
        try:
            return Done(work(self._pipeline))
        except RecordingError as error:
            return Done(refused=str(error))

    def close(self) -> None:
        """End its processes."""
        self._stack.close()

    def _started(self) -> Pipeline:
        spec, enter = self._spec, self._stack.enter_context
        os.environ.update(spec.environment)
        folder = Path(enter(tempfile.TemporaryDirectory(prefix="llamea-gpu-engine-")))
        if spec.exclusive:
            enter(devices_held([DEVICE]))
        template = enter(Template(spec.preload, folder / "template.log"))
        compiling, timing = spec.build(folder)
        return enter(Pipeline(compiling, timing, folder, spec.limits, template, **spec.options))

    def _examined(self) -> Examined:
        context = import_ray().get_runtime_context()
        assigned = [str(gpu) for gpu in import_ray().get_gpu_ids()]
        name = gpu_facts(assigned[0]).get("gpu", "") if assigned else ""
        facts = {**software(), **installed(self._spec.versions), KIND: name}
        return Examined(context.get_node_id(), socket.gethostname(), facts)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
