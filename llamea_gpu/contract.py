"""The optimizer contract: what a searcher is given, and what it must be.

What it does: writes the contract down as protocols, for type checkers and readers: what every
searcher gets, and what a trusted one (a library's or ours, never a program in the sandbox) may ask
for with ``isinstance``, or with the functions at the end of this module:

    ================== ========= ===================================================================
    `DescribesKernel`  space     of a recording; of a live kernel of Helion or Kernel Tuner
    `BeginsWith`       space     of a searcher that goes on where another ended: a hybrid's NEXT,
                                 in the sandbox too, and the fallback of ``llm:``
    `ExplainsFailures` evaluate  of a recording; of a live kernel of Helion or Kernel Tuner
    `SimulatesTime`    evaluate  of a recording
    `ReportsTrouble`   optimizer ``llm:``, hybrids, and whatever tunes a live kernel
    `MeasuresStarts`   optimizer ``helion:``
    ================== ========= ===================================================================

What it does not do: enforce it. The sandbox hands out the objects, admission reads the source.

A searcher is a class whose numeric hyperparameters all have defaults. Calling an instance runs it::

    class AdaptiveSomething:
        def __init__(self, pool_size=16, restart_after=40): ...
        def __call__(self, evaluate, space, rng):
            costs = evaluate(space.sample(16))

or, where compiling and timing go on side by side, without ever waiting for a whole batch::

            evaluate.submit(space.sample(evaluate.parallel))
            while done := evaluate.wait():
                for config, cost in done: ...
                evaluate.submit(...)  # as many as were done

The best configuration the host has seen is the answer; a return value is ignored. The end of the
budget raises `llamea_gpu.errors.BudgetExhausted`, a BaseException, out of ``evaluate``; so does
`llamea_gpu.errors.Stalled` where an optimizer keeps asking for what it has seen. After that one
another optimizer may go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import RecordingInfo

Value = int | float | str | bool | None
Configuration = tuple[int, ...]  # value indices, one for each parameter
Configurations = Sequence[Configuration] | NDArray[np.int64]


class Space(Protocol):
    """The valid configurations. All randomness comes from the run's generator."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    cardinalities: tuple[int, ...]
    ordinal: tuple[bool, ...]

    @property
    def size(self) -> int | None:
        """Number of valid configurations, None when they cannot be counted."""

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct random configurations, or all of them when there are fewer."""

    def pool(self, n: int) -> NDArray[np.int64]:
        """(m, d) value indices: every configuration if there are at most ``n``, else n random."""

    def neighbors(self, config: Configuration, kind: str = "hamming") -> list[Configuration]:
        """Configurations that differ in one parameter.

        ``hamming``: in any value; ``adjacent``: the nearest valid values up and down of an ordinal
        parameter, any other value of a categorical one.

        Raises:
            ValueError: ``config`` is not valid.
        """

    def contains(self, config: Configuration) -> bool:
        """Whether ``config`` is valid."""

    def repair(self, config: Sequence[float]) -> Configuration:
        """The nearest valid configuration."""

    def encode(self, configs: Configurations) -> NDArray[np.float64]:
        """(n, d) coordinates in [0, 1]."""


class Evaluate(Protocol):
    """The measurement. First visits spend budget; revisits are free, from the host's memory.

    A call measures and waits. `submit` queues and `wait` hands out what is done, so that compiling
    goes on while the searcher thinks. Where measurements cannot overlap, they are made during a
    wait: one (sequential), or all that is queued as one batch (parallel).

    The run ends with the budget, or when the optimizer returns. What is still on its way is then
    dropped: it neither counts nor spends. What was done before counts, waited for or not. One call
    or submission after another is measured in order: what was submitted before goes first.
    """

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""

    @property
    def parallel(self) -> int:
        """How many configurations are worth having on their way: the size of a good batch."""

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet, repeated ones counted."""

    def __call__(self, configs: Configurations) -> list[float]:
        """Costs to minimise, in the order of ``configs``; inf for one that does not work.

        What is submitted and done meanwhile is left to later waits.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new: the optimizer has ended.
        """

    def submit(self, configs: Configurations) -> None:
        """Queue ``configs``, each to be handed out once by `wait`.

        One that is known is handed out by the next wait, free; one that is on its way already, or
        comes twice, is measured once and handed out as often as it was submitted, together.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way (in the sandbox
                65,536). Nothing is queued.
            BudgetExhausted: the run is over.
            Stalled: as for a call.
        """

    def wait(self) -> list[tuple[Configuration, float]]:
        """Submitted configurations with their costs, at least one, in the order of completion.

        Those that are done by now, if any are; else it waits for the next. Empty when nothing is
        pending.

        Raises:
            BudgetExhausted: the run is over before anything more is done.
            Stalled: nothing was pending, too often in a row.
        """


class Optimizer(Protocol):
    """An instance of a searcher's class."""

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> Any:
        """Runs until the budget ends, or until there is nothing left to try."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a vendor publishes of a GPU; a field is None where that depends on the variant.

    ``peak_tflops`` are dense rates by number format, without sparsity. Registers are of 32 bits.
    """

    title: str
    compute_units: int
    unit_name: str
    warp_size: int
    shared_kib_per_unit: int
    shared_kib_per_block: int
    registers_per_unit: int
    l2_mib: float
    bandwidth_gb_s: float | None
    peak_tflops: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What is known of a kernel before it is tuned. Nothing in it is a measurement.

    Attributes:
        info: kernel, arguments and device, without reference times.
        default: the valid configuration that the kernel ships with.
        device: what the GPU says of itself.
        notes: further facts, one line each.
        bound: the framework's own objects of a whole space, for its own searches.
    """

    info: RecordingInfo | None = None
    default: Configuration | None = None
    device: DeviceFacts | None = None
    notes: tuple[str, ...] = ()
    bound: object = None


@runtime_checkable
class DescribesKernel(Protocol):
    """A space that knows what is tuned."""

    @property
    def facts(self) -> KernelFacts:
        """Kernel, default configuration and device."""


@runtime_checkable
class BeginsWith(Protocol):
    """A space of which some has been measured already."""

    @property
    def measured(self) -> Sequence[Configuration]:
        """Best first, failures last; their costs are to be had from ``evaluate``, free."""


@runtime_checkable
class ExplainsFailures(Protocol):
    """An ``evaluate`` that knows more of a failure than its cost of inf."""

    def failure(self, config: Configuration) -> str | None:
        """How a configuration that was measured failed; None where it works or nobody knows."""


@runtime_checkable
class SimulatesTime(Protocol):
    """An ``evaluate`` on whose clock only measuring takes time, unless it is told."""

    @property
    def now_s(self) -> float:
        """Seconds of the run so far."""

    def wait_until(self, moment_s: float) -> None:
        """Let time pass with nothing measured; never back."""


@runtime_checkable
class ReportsTrouble(Protocol):
    """An optimizer that goes on in spite of some faults, and says so afterwards."""

    @property
    def trouble(self) -> str | None:
        """What the last run went on in spite of; None or empty for nothing."""


@runtime_checkable
class MeasuresStarts(Protocol):
    """An optimizer that measures a whole kernel's default and seeds by itself, as it does live.

    For every other one they are measured before it begins.
    """

    measures_starts: bool


def facts_of(space: Space) -> KernelFacts:
    """What ``space`` knows of its kernel."""
    return space.facts if isinstance(space, DescribesKernel) else KernelFacts()


def measured_in(space: Space) -> Sequence[Configuration]:
    """What another searcher has measured of ``space``, best first."""
    return space.measured if isinstance(space, BeginsWith) else ()


def failure_of(evaluate: Evaluate, config: Configuration) -> str | None:
    """How ``config`` failed, as far as ``evaluate`` tells."""
    return evaluate.failure(config) if isinstance(evaluate, ExplainsFailures) else None


def trouble_of(optimizer: object) -> str:
    """What ``optimizer`` went on in spite of; a generated one may use the name for its own ends."""
    trouble = optimizer.trouble if isinstance(optimizer, ReportsTrouble) else None
    return trouble if isinstance(trouble, str) else ""
