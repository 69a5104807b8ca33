"""The optimizer contract's space of a Kernel Tuner kernel that has too many configurations to list.

Kernel Tuner's ``Searchspace`` lists all valid configurations before the first one is measured.
Here it lists windows: some values of each parameter, a few thousand combinations at most, of which
its own solver keeps what the restrictions and the device allow. So a configuration is valid here
exactly where it is there, and nothing takes long.

Not covered: restrictions that leave so little that windows are mostly empty. Then random
configurations are hard to find, and without a default configuration perhaps none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.parameters import is_ordinal
from llamea_gpu.spaces.space import Configuration, Value, checked_target, encoded

MOST_COMBINATIONS = 2_048  # of a window
MOST_SAMPLED = 1_024
_EMPTY_WINDOWS = 200  # in a row, before nothing is to be found
_PICKS = 8  # from one window, of a sample


class UnlistedSpace:
    """Valid configurations of ``tune_params`` as tuples of value indices; ``size`` is None.

    Args:
        tune_params: values of each parameter, as ``tune_kernel`` takes them.
        restrictions: as ``tune_kernel`` takes them.
        max_threads: of a block of the device.
        default: a configuration that is known, by name; left out where it is not valid.
        rng: of what it draws.

    Raises:
        RecordingError: no valid configuration is to be found.
    """

    size = None

    def __init__(
        self,
        tune_params: Mapping[str, Sequence[Any]],
        restrictions: Any,
        max_threads: int,
        default: Mapping[str, Value] | None,
        rng: np.random.Generator,
    ) -> None:
        self._native = {str(name): list(values) for name, values in tune_params.items()}
        self._restrictions, self._max_threads, self._rng = restrictions, max_threads, rng
        self.names = tuple(self._native)
        self.values: tuple[tuple[Value, ...], ...] = tuple(
            tuple(v.item() if isinstance(v, np.generic) else v for v in values)
            for values in self._native.values()
        )
        self.cardinalities = tuple(map(len, self.values))
        self.ordinal = tuple(map(is_ordinal, self.values))
        # By type and value, because Kernel Tuner lets one parameter hold both 1 and True.
        self._index = [{(type(v), v): i for i, v in enumerate(vs)} for vs in self._native.values()]
        self._valid: dict[Configuration, bool] = {}
        self._steps: dict[Configuration, list[list[int]]] = {}
        self._pooled: dict[Configuration, None] = {}
        self.leaders: list[Configuration] = []
        self.default = self._placed(default)
        first = self.default or self.draw()
        if first is None:
            raise RecordingError(
                f"a space to draw from must have valid configurations that are found by drawing, "
                f"but {_EMPTY_WINDOWS} windows of {MOST_COMBINATIONS} combinations had none: name "
                f"one as INFO['default_configuration'] of the script"
            )
        self.starts: list[Configuration] = [first]

    def draw(self, rng: np.random.Generator | None = None) -> Configuration | None:
        """A configuration from throughout the space; None where one is hard to find.

        One of those in a random window: not all are equally likely.
        """
        rng = rng or self._rng
        for _ in range(_EMPTY_WINDOWS):
            window = self._window(self._random_values(rng))
            if window:
                return window[int(rng.integers(len(window)))]
        return None

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct configurations, at most 1,024: the starts, then around the best and them.

        A log-uniform number of parameters is changed, at most half.
        """
        n = max(min(int(n), MOST_SAMPLED), 0)
        configs = dict.fromkeys(self.starts[: 0 if self.leaders else n])
        picks, empty = max(1, min(_PICKS, n // _PICKS)), 0
        while len(configs) < n and empty < _EMPTY_WINDOWS:
            window = [c for c in self._window(self._values_near()) if c not in configs]
            empty = 0 if window else empty + 1
            for i in self._rng.permutation(len(window))[:picks]:
                configs[window[i]] = None
        return list(configs)[:n]

    def pool(self, n: int) -> NDArray[np.int64]:
        """(m, d) value indices: neighbours of the best, then a sample that stays the same."""
        if len(self._pooled) < min(n, MOST_SAMPLED):
            self._pooled = dict.fromkeys([*self._pooled, *self.sample(n)])
        near = [config for leader in self.leaders[:3] for config in self.neighbors(leader)]
        rows = list(dict.fromkeys([*near[: n // 2], *self._pooled]))[:n]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.names))

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Configuration]:
        """Valid configurations that differ in one parameter.

        Raises:
            ValueError: ``config`` is not valid, or the kind is unknown.
        """
        home = self.canonical(config)
        if home is None or kind not in ("hamming", "adjacent"):
            raise ValueError(
                f"neighbors needs a valid configuration and the kind 'hamming' or 'adjacent', but "
                f"got {config!r:.200} and {kind!r}"
            )
        if home not in self._steps:
            self._steps[home] = [self._line(home, j) for j in range(len(home))]
        neighbors = []
        for j, line in enumerate(self._steps[home]):
            below, above = [i for i in line if i < home[j]], [i for i in line if i > home[j]]
            if kind == "adjacent" and self.ordinal[j]:
                below, above = below[-1:], above[:1]
            neighbors += [(*home[:j], i, *home[j + 1 :]) for i in (*below, *above)]
        return neighbors

    def contains(self, config: Sequence[int]) -> bool:
        """Whether the restrictions and the device allow it."""
        return self.canonical(config) is not None

    def canonical(self, config: Sequence[int]) -> Configuration | None:
        """The configuration itself, None where it is not valid."""
        try:
            key = tuple(map(int, config))
            pairs = zip(key, self.cardinalities, strict=True)
            if key != tuple(config) or not all(0 <= i < c for i, c in pairs):
                return None
        except (TypeError, ValueError, OverflowError):
            return None
        if key not in self._valid:
            self._valid[key] = bool(self._window([[i] for i in key]))
        return key if self._valid[key] else None

    def repair(self, config: Sequence[float]) -> Configuration:
        """A valid configuration near: parameters take a start's values one after another.

        Raises:
            ValueError: the wrong number of indices, or one that is not a finite number.
        """
        target = checked_target(config, len(self.names))
        highest = np.array(self.cardinalities, dtype=np.float64) - 1
        nearest = tuple(np.clip(np.rint(target), 0, highest).astype(int).tolist())
        anchor = self.starts[0]
        mixed = (nearest[:split] + anchor[split:] for split in range(len(nearest), 0, -1))
        return next((valid for valid in map(self.canonical, mixed) if valid is not None), anchor)

    def encode(self, configs: Any) -> NDArray[np.float64]:
        """(n, d) indices scaled to [0, 1]."""
        return encoded(configs, self.cardinalities)

    # -- windows ----------------------------------------------------------------------------

    def _window(self, chosen: Sequence[Sequence[int]]) -> list[Configuration]:
        """The valid ones of all combinations of these values of each parameter, in order."""
        from kernel_tuner.searchspace import Searchspace

        columns = zip(self._native.items(), chosen, strict=True)
        listed = Searchspace(
            {name: [values[i] for i in indices] for (name, values), indices in columns},
            self._restrictions,
            self._max_threads,
        ).list
        return sorted(
            tuple(places[type(v), v] for places, v in zip(self._index, values, strict=True))
            for values in listed
        )

    def _random_values(self, rng: np.random.Generator) -> list[list[int]]:
        """A value of each parameter, then more of random ones while there is room."""
        orders = [rng.permutation(c).tolist() for c in self.cardinalities]
        counts = [1] * len(orders)
        for j in rng.permutation(np.repeat(np.arange(len(orders)), self.cardinalities)):
            grown = math.prod(counts) // counts[j] * (counts[j] + 1)
            if counts[j] < self.cardinalities[j] and grown <= MOST_COMBINATIONS:
                counts[j] += 1
        return [sorted(order[:count]) for order, count in zip(orders, counts, strict=True)]

    def _values_near(self) -> list[list[int]]:
        """One of the best or a start, with all values of a few parameters, as far as there is room.

        Those that have an order keep to the values beside half of the time.
        """
        known = [*self.leaders, *self.starts]
        base = known[int((len(known) + 1) ** self._rng.random()) - 1]
        chosen = [[i] for i in base]
        most = (len(base) + 1) // 2
        combinations = 1
        for j in self._rng.permutation(len(base))[: int((most + 1) ** self._rng.random())]:
            values = list(range(self.cardinalities[j]))
            if self.ordinal[j] and self._rng.random() < 0.5:
                values = values[max(base[j] - 1, 0) : base[j] + 2]
            if combinations * len(values) <= MOST_COMBINATIONS:
                combinations *= len(values)
                chosen[j] = values
        return chosen

    def _line(self, home: Configuration, j: int) -> list[int]:
        """Values of parameter ``j`` that are valid beside the others of ``home``."""
        window = [[i] for i in home]
        window[j] = list(range(self.cardinalities[j]))
        return [config[j] for config in self._window(window)]

    def _placed(self, default: Mapping[str, Value] | None) -> Configuration | None:
        if default is None:
            return None
        try:
            indices = tuple(
                [repr(v) for v in values].index(repr(default[name]))
                for name, values in zip(self.names, self.values, strict=True)
            )
        except (KeyError, ValueError):
            return None
        return self.canonical(indices)
