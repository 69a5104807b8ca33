"""The optimizer contract on top of Kernel Tuner: an optimizer becomes a strategy.

What it does: shows Kernel Tuner's valid configurations as tuples of value indices, hands batches
to its runner, remembers costs so that revisits are free, and turns its stop criterion into the end
of the optimizer's run. Draws and answers are those of the simulator (`llamea_gpu.spaces.space`),
so that a seed visits the same configurations there and here.

What it does not do: import anything of llamea_gpu but two exceptions. Its text and theirs are
pasted into every exported file, hence numpy and kernel_tuner only, and names that no optimizer has.
"""

import contextlib
import math
import random as python_random
import secrets
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import kernel_tuner.interface
import numpy as np
from kernel_tuner.strategies.common import get_options
from kernel_tuner.strategies.wrapper import OptAlgWrapper

from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.live.queued import QueuedEvaluate

KernelTunerConfiguration = tuple[int, ...]  # value indices, one for each tunable parameter


class KernelTunerSpace:
    """``space`` of the contract: Kernel Tuner's valid configurations, in lexicographic order."""

    def __init__(self, searchspace: Any, rng: np.random.Generator) -> None:
        lists = [list(values) for values in searchspace.tune_params.values()]
        self.names = tuple(searchspace.tune_params)
        self.values = tuple(
            tuple(v.item() if isinstance(v, np.generic) else v for v in values) for values in lists
        )
        self.cardinalities = tuple(map(len, lists))
        self.ordinal = tuple(map(self._is_ordinal, self.values))
        # By type and value, because Kernel Tuner lets one parameter hold both 1 and True.
        indices = [{(type(v), v): i for i, v in enumerate(values)} for values in lists]
        native = {
            tuple(index[type(v), v] for index, v in zip(indices, config, strict=True)): config
            for config in searchspace.list
        }
        self._tuples = sorted(native)
        self._row_of = {config: row for row, config in enumerate(self._tuples)}
        self._array = np.array(self._tuples, dtype=np.int64)
        self._rng = rng
        self.size = len(self._tuples)
        self.native = [native[config] for config in self._tuples]  # row -> values, for the runner

    @staticmethod
    def _is_ordinal(values: Sequence[Any]) -> bool:
        """At least two numbers (not bool), strictly rising or falling."""
        if len(values) < 2 or not all(type(v) in (int, float) for v in values):
            return False
        signs = {(a < b) - (a > b) for a, b in pairwise(values)}
        return signs in ({1}, {-1})

    def row(self, config: Any) -> int:
        """Position among the valid configurations, -1 for one that is not."""
        try:
            return self._row_of.get(tuple(config), -1)
        except TypeError:  # no sequence, or unhashable
            return -1

    def sample(self, n: int) -> list[KernelTunerConfiguration]:
        """``n`` distinct random configurations; all of them, shuffled, when n >= size."""
        return [self._tuples[row] for row in self._random_rows(n)]

    def pool(self, n: int) -> Any:
        """(m, d) value indices: every configuration if there are at most n, else n random ones."""
        return self._array.copy() if n >= self.size else self._array[self._random_rows(n)]

    def _random_rows(self, n: int) -> list[int]:
        size, rng = self.size, self._rng
        if n >= size:
            return list(rng.permutation(size).tolist())
        if n == 1:
            return [int(rng.integers(size))]
        while n * n <= size:  # few of many: draw again while something repeats
            rows = rng.integers(0, size, n).tolist()
            if len(set(rows)) == n:
                return list(rows)
        return list(rng.choice(size, n, replace=False).tolist())

    def neighbors(
        self, config: Sequence[int], kind: str = "hamming"
    ) -> list[KernelTunerConfiguration]:
        """Valid configurations that differ in one parameter, by parameter, then by value index.

        ``adjacent`` keeps, along an ordinal parameter, only the nearest valid value down and up.
        """
        row = self.row(config)
        if row < 0:
            raise ValueError(f"neighbors needs a valid configuration, but got {config!r:.200}")
        if kind not in ("hamming", "adjacent"):
            raise ValueError(f"kind must be 'hamming' or 'adjacent', but got {kind!r}")
        center = self._tuples[row]
        neighbors = []
        for j, own in enumerate(center):
            line = [(*center[:j], i, *center[j + 1 :]) for i in range(self.cardinalities[j])]
            below = [other for other in line[:own] if other in self._row_of]
            above = [other for other in line[own + 1 :] if other in self._row_of]
            if kind == "adjacent" and self.ordinal[j]:
                below, above = below[-1:], above[:1]
            neighbors += below + above
        return neighbors

    def contains(self, config: Sequence[int]) -> bool:
        """Whether the configuration is valid."""
        return self.row(config) >= 0

    def repair(self, config: Sequence[float]) -> KernelTunerConfiguration:
        """The nearest valid configuration; ties go to the first in lexicographic order.

        A differing categorical parameter counts 1, an ordinal one |difference| / (values - 1).
        Fractions and indices out of range are allowed.
        """
        row = self.row(config)
        if row >= 0:
            return self._tuples[row]
        beyond = (~np.array(self.ordinal)).astype(np.int64)  # out of range stays out of range
        top = np.array(self.cardinalities) - 1
        target = np.clip(self._finite(config), -beyond, top + beyond)
        distance = np.zeros(self.size)
        for j, last in enumerate(top.tolist()):
            column = self._array[:, j]
            if last and self.ordinal[j]:
                distance += np.abs(column - target[j]) / last
            elif last:
                distance += column != np.rint(target[j])
        return self._tuples[int(np.argmax(distance <= distance.min() + 1e-9))]

    def _finite(self, config: Sequence[float]) -> Any:
        try:
            target = np.asarray(config, dtype=np.float64)
        except (TypeError, ValueError):
            target = np.empty(0)
        if target.shape != (len(self.names),) or not np.isfinite(target).all():
            raise ValueError(
                f"a configuration to repair must be {len(self.names)} finite numbers, but got "
                f"{config!r:.200}"
            )
        return target

    def encode(self, configs: Any) -> Any:
        """Value indices scaled to [0, 1]: (n, d), index / (values - 1), 0 for a single value."""
        array = np.asarray(configs, dtype=np.float64)
        dimension = len(self.names)
        if array.size and array.shape[-1:] != (dimension,):
            raise ValueError(f"encode needs (n, {dimension}) indices, but got {array.shape}")
        return array.reshape(-1, dimension) / np.maximum(np.array(self.cardinalities) - 1, 1)


class KernelTunerEvaluate(QueuedEvaluate):
    """``evaluate`` of the contract: Kernel Tuner measures what is new, the rest is remembered.

    ``fault`` is what Kernel Tuner has ended the run with: its stop criterion, or its own failure.
    """

    max_idle_asks = 10_000  # with nothing new among them, in a row: the optimizer is stuck

    def __init__(self, func: Any, space: KernelTunerSpace) -> None:
        super().__init__(space)
        self.func = func
        self.fault: Exception | None = None
        self._cost_of: dict[int, float] = {}  # by row
        self._idle_asks = 0

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1, as of the last answer."""
        return float(self.func.budget_spent_fraction)

    @property
    def parallel(self) -> int:
        """How many configurations Kernel Tuner's runner measures side by side."""
        return max(int(self.func.runner.available_parallelism()), 1)

    def __call__(self, configs: Any) -> list[float]:
        """Costs to minimise, in the order of ``configs``; inf for one that does not work.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over, or Kernel Tuner failed.
            Stalled: too many asks in a row brought nothing new.
        """
        rows = [self.space.row(config) for config in self._valid(configs)]
        fresh = self._unknown(rows)
        self._count_idle(len(rows), len(fresh))
        self._measure(fresh)
        return [self._cost_of[row] for row in rows]

    def _unknown(self, rows: Sequence[int]) -> list[int]:
        return [row for row in dict.fromkeys(rows) if row not in self._cost_of]

    def _measure(self, rows: Sequence[int]) -> None:
        """Measure rows; with none, too: this is where Kernel Tuner looks at the clock."""
        try:
            costs = self.func.eval_all([self.space.native[row] for row in rows])
        except Exception as reason:
            self.fault = reason
            raise BudgetExhausted from reason
        for row, cost in zip(rows, costs, strict=True):
            self._note_cost(row, cost)

    def _note_cost(self, row: int, cost: float) -> None:
        # The largest float is how Kernel Tuner spells a failure.
        self._cost_of[row] = float(cost) if cost < sys.float_info.max else math.inf

    def _count_idle(self, count: int, fresh: int) -> None:
        self._idle_asks = 0 if fresh else self._idle_asks + max(count, 1)
        if self._idle_asks > self.max_idle_asks:
            self._idle_asks = 0  # of a hybrid, the next optimizer begins with revisits
            raise Stalled(f"the optimizer asked {self.max_idle_asks} times for what it had seen")


class KernelTunerStrategy:
    """An optimizer as ``strategy=`` of ``kernel_tuner.tune_kernel``.

    ``make`` builds the optimizer from ``hyperparameters``, which ``strategy_options`` may change
    for a run. The seed of a run is ``seed``, else the one that ``tune_kernel`` was given, else a
    random one; the attributes ``seed`` and ``optimizer`` are those of the latest run. Whatever the
    optimizer does, the result of tuning is all that was measured.
    """

    make_evaluate: Callable[[Any, Any], KernelTunerEvaluate] = KernelTunerEvaluate
    optimizer: Any = None

    def __init__(
        self,
        name: str,
        make: Callable[..., Any],
        hyperparameters: Mapping[str, Any],
        seed: int | None = None,
    ) -> None:
        self.name = name
        self.seed = self._checked_seed(seed)
        self.hyperparameters = dict(hyperparameters)
        # As Kernel Tuner's own strategies describe theirs.
        self._options = {key: ("hyperparameter", value) for key, value in hyperparameters.items()}
        self.costfunc_kwargs = {"scaling": False, "snap": False}  # configurations as they are
        self._make = make
        self._fixed_seed = self.seed
        # Kernel Tuner 1.5 grants several workers only to the strategies on this list of its own.
        vars(kernel_tuner.interface).get("_STRATEGY_PARALLEL", []).append(self)

    def __repr__(self) -> str:
        hyperparameters = "".join(f", {key}={value}" for key, value in self.hyperparameters.items())
        return f"{type(self).__name__}({self.name}, seed={self.seed}{hyperparameters})"

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> Any:
        """What ``tune_kernel`` calls; returns its results."""
        return OptAlgWrapper(self).tune(searchspace, runner, tuning_options)

    def __call__(self, func: Any, searchspace: Any) -> None:
        """Run on a cost function of Kernel Tuner's, whose exception ends it with the budget."""
        options = func.tuning_options
        if len(options.objective) != 1:
            raise ValueError(
                f"{self.name} minimises one objective, but tune_kernel got {options.objective}"
            )
        # Refuses what is neither a hyperparameter nor Kernel Tuner's; x0 is not in the contract.
        settings = get_options(options.strategy_options, self._options, unsupported=["x0"])
        self.seed = self._choose_seed(options.get("seed"))
        if self._fixed_seed is None and not getattr(func.runner, "quiet", False):
            print(f"{self.name}: seed {self.seed}")
        with self._seeded(self.seed) as rng:
            space = KernelTunerSpace(searchspace, rng)
            evaluate = self.make_evaluate(func, space)
            self.optimizer = self._make(**dict(zip(self._options, settings, strict=True)))
            try:
                self.optimizer(evaluate, space, rng)
            except BudgetExhausted:
                pass
            except Stalled as stalled:
                warnings.warn(f"tuning ends before its budget: {stalled}", stacklevel=2)
            except Exception:
                if not func.results:
                    raise
                fault = traceback.format_exc(limit=-3)
                message = f"{self.name} failed; the result is what was measured before: {fault}"
                warnings.warn(message, stacklevel=2)
            if evaluate.fault is not None:
                raise evaluate.fault

    def _choose_seed(self, of_tune_kernel: int | None) -> int:
        seed = self._fixed_seed if self._fixed_seed is not None else of_tune_kernel
        checked = self._checked_seed(seed)
        return secrets.randbits(32) if checked is None else checked

    @staticmethod
    def _checked_seed(seed: int | None) -> int | None:
        if seed is None or (isinstance(seed, int | np.integer) and seed >= 0):
            return None if seed is None else int(seed)
        raise ValueError(f"a seed must be an integer >= 0, but got {seed!r}")

    @staticmethod
    @contextlib.contextmanager
    def _seeded(seed: int) -> Iterator[np.random.Generator]:
        """The run's generator; meanwhile every other source of randomness depends on the seed."""
        before = python_random.getstate(), np.random.get_state()  # noqa: NPY002 - put back below
        unseeded = vars(np.random.bit_generator)  # whence ``default_rng()`` takes its entropy
        entropy = unseeded.get("randbits")
        python_random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - for what draws from the global generator
        if entropy is not None:
            unseeded["randbits"] = python_random.Random(seed).getrandbits  # noqa: S311 - no secret
        try:
            yield np.random.default_rng(seed)
        finally:
            python_random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            if entropy is not None:
                unseeded["randbits"] = entropy
