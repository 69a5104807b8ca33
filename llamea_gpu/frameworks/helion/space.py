"""A kernel's ConfigSpec as the optimizer contract's ``space``.

What it does: maps value indices to Helion's flat configurations and back, with samples around
Helion's default and the seeds, neighbours along each fragment's own order, and Helion's
normalisation as repair.

What it does not do: list the configurations, of which there are some 1e15; evaluate any. With
`llamea_gpu.live.helion.runtime` it is the runtime of an exported file: helion and numpy are
all it needs.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from helion.autotuner import config_fragment
from helion.exc import InvalidConfig, NoConfigFound

# Each configuration takes Helion some 0.1 to 0.4 ms to normalise: more than this many at once are
# not made, whatever is asked for.
HELION_MOST_SAMPLED = 1024
HELION_MOST_POOLED = 2048
HELION_MOST_VALUES = 64  # of an integer's range
HELION_NOTHING_NEAR = 16  # random configurations around the starts that were all known
HELION_MOST_DRAWS = 4096  # of random configurations for a single valid one


class HelionSpace:
    """The configurations of a ConfigSpec as the optimizer contract's ``space``.

    A slot of Helion's flat configuration is one parameter, a list one for each element
    (``indexing[2]``), a permutation one for each place (``loop_orders[0].1``: which of the elements
    that are left comes there). Slots that cannot vary are left out; one of a kind that is not known
    here takes the values of the default and the seeds. Many flat configurations mean
    the same to Helion, which normalises them; `sample`, `pool`, `neighbors` and `repair` return the
    normalised one, and the others count as visits to it. ``size`` is None.

    ``seeds`` are flat configurations that `sample` returns first, after Helion's default.
    ``accepts`` can refuse a configuration that Helion allows.
    """

    size = None

    def __init__(
        self,
        config_gen: Any,
        rng: np.random.Generator,
        seeds: Sequence[list[Any]] = (),
        accepts: Callable[[Any], bool] | None = None,
    ) -> None:
        self._config_gen, self._rng, self._accepts = _helion_keeping(config_gen), rng, accepts
        self._canonical: dict[tuple[int, ...], tuple[int, ...] | None] = {}
        self._off_the_lists: dict[Any, tuple[int, ...]] = {}
        self._neighbors: dict[tuple[tuple[int, ...], str], list[tuple[int, ...]]] = {}
        self._pooled: dict[tuple[int, ...], None] = {}
        self.leaders: list[tuple[int, ...]] = []  # the best so far, for `pool`
        self._where: list[tuple[int, int | None]] = []  # slot and place of each parameter
        self._lists: list[range] = []  # the parameters of each list
        self._orders: list[int] = []  # slots that are permutations
        self._base = list(config_gen.default_flat())
        normal = self._normalised_flat(self._base)
        known = [*filter(None, [normal, *map(self._normalised_flat, seeds)])]
        names: list[str] = []
        values: list[tuple[Any, ...]] = []
        self.ordinal: tuple[bool, ...] = ()
        for slot, name in enumerate(_helion_slot_names(config_gen)):
            if slot not in config_gen.overridden_flat_indices:
                self._add_slot(slot, name, [flat[slot] for flat in known], names, values)
        self.names = tuple(names)
        self.cardinalities = tuple(map(len, values))
        self._values = tuple(values)
        self.values = tuple(tuple(map(_helion_shown, column)) for column in values)
        self._index = [{repr(v): i for i, v in enumerate(column)} for column in values]
        starts = [self.canonical(self._nearest(flat)) for flat in known]
        # As of a recording: None where Helion or the user refuses the default.
        self.default = starts[0] if known and known[0] == normal else None
        self.starts = list(dict.fromkeys(start for start in starts if start is not None))
        self._unsampled = list(self.starts)
        self._anchor = self.starts[:1]  # a valid one, for `repair`

    # -- the contract -----------------------------------------------------------------------

    def sample(self, n: int) -> list[tuple[int, ...]]:
        """``n`` distinct configurations, at most 1,024.

        The first ones of a run are Helion's default, the user's seeds and the compiler's. The
        others are one of these, or of the best so far, with some parameters changed, at most half
        of them and mostly few. Where all are random, hardly any is near the default's time, and
        some crash.
        """
        n = max(min(int(n), HELION_MOST_SAMPLED), 0)
        starts = dict.fromkeys(self._unsampled[:n])
        del self._unsampled[: len(starts)]
        return self._filled(starts, n)

    def pool(self, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(m, d) indices, at most 2,048 rows: around the best so far, then random ones.

        The random ones are the same in every call of a run, as in a space that can be listed.
        """
        n = max(min(int(n), HELION_MOST_POOLED), 0)
        if len(self._pooled) < n:
            start = self._pooled or dict.fromkeys(self.starts)
            self._pooled = dict.fromkeys(self._filled(start, n))
        near = [config for leader in self.leaders[:3] for config in self.neighbors(leader)]
        rows = list(dict.fromkeys([*near[: n // 2], *self._pooled]))[:n]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.names))

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[tuple[int, ...]]:
        """What a change in one parameter leads to, or one value throughout a list.

        ``adjacent`` takes, along an ordinal parameter, the nearest other configuration down and up.
        Helion may normalise further parameters along with the one that was changed.

        Raises:
            ValueError: ``config`` is not valid, or the kind is unknown.
        """
        home = self.canonical(config)
        if home is None:
            raise ValueError(
                f"neighbors needs a valid configuration, but got {config!r}: use repair() first"
            )
        if kind not in ("hamming", "adjacent"):
            raise ValueError(f"kind must be 'hamming' or 'adjacent', but got {kind!r}")
        if (home, kind) not in self._neighbors:
            neighbors = dict.fromkeys(self._steps(home, kind == "adjacent"))
            neighbors.pop(home, None)
            self._neighbors[home, kind] = list(neighbors)
        return list(self._neighbors[home, kind])

    def contains(self, config: Sequence[int]) -> bool:
        """Whether Helion takes the configuration, as it is or normalised."""
        return self.canonical(config) is not None

    def repair(self, config: Sequence[float]) -> tuple[int, ...]:
        """The configuration that Helion makes of the nearest indices.

        Where it refuses them, parameters take the default's values one after another until it
        does not; where the default is refused too, those of a seed or of a random configuration.

        Raises:
            ValueError: the wrong number of indices, or one that is not a finite number.
            NoConfigFound: no configuration is accepted, as far as random ones tell.
        """
        target = np.asarray(config, dtype=np.float64)
        if target.shape != (len(self.names),) or not np.isfinite(target).all():
            raise ValueError(
                f"a configuration to repair must be {len(self.names)} finite numbers, but got "
                f"{config!r}"
            )
        highest = np.array(self.cardinalities, dtype=np.float64) - 1
        nearest = tuple(np.clip(np.rint(target), 0, highest).astype(int).tolist())
        normal = self.canonical(nearest)
        if normal is not None:
            return normal
        if not self._anchor:
            self._anchor = self._filled({}, 1)
        if not self._anchor:
            raise NoConfigFound
        anchor = self._anchor[0]
        mixed = (nearest[:split] + anchor[split:] for split in range(len(nearest) - 1, 0, -1))
        return next((valid for valid in map(self.canonical, mixed) if valid is not None), anchor)

    def encode(self, configs: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(n, d) indices scaled to [0, 1]: powers of two by their exponent, as Helion encodes them.

        Raises:
            ValueError: not (n, d) indices, nor one configuration of d, nor empty.
        """
        array = np.asarray(configs, dtype=np.float64)
        if array.size and array.shape[-1:] != (len(self.names),):
            raise ValueError(
                f"encode needs (n, {len(self.names)}) indices, but got shape {array.shape}"
            )
        highest = np.maximum(np.array(self.cardinalities, dtype=np.float64) - 1, 1)
        scaled: np.ndarray[Any, np.dtype[np.float64]] = array.reshape(-1, len(self.names)) / highest
        return scaled

    # -- between the contract and Helion ----------------------------------------------------

    def canonical(self, config: Sequence[int]) -> tuple[int, ...] | None:
        """The normalised configuration of ``config``, or None where it is not valid."""
        try:
            key = tuple(map(int, config))
            pairs = zip(key, self.cardinalities, strict=True)
            if key != tuple(config) or not all(0 <= i < c for i, c in pairs):
                return None
        except (TypeError, ValueError, OverflowError):
            return None
        if key not in self._canonical:
            normal = self._normalise(key)
            if normal is not None:
                normal = self._canonical.setdefault(normal, normal)
            self._canonical[key] = normal
        return self._canonical[key]

    def flat(self, config: Sequence[int]) -> list[Any]:
        """Helion's flat configuration of value indices."""
        flat = [list(v) if isinstance(v, list) else v for v in self._base]
        for (slot, place), column, i in zip(self._where, self._values, config, strict=True):
            if place is None:
                flat[slot] = column[i]
            else:
                flat[slot][place] = column[i]
        for slot in self._orders:
            left = list(range(len(flat[slot])))
            flat[slot] = [left.pop(i) for i in flat[slot]]
        return flat

    def config(self, config: Sequence[int]) -> Any:
        """The ``helion.Config`` of value indices."""
        return self._config_gen.unflatten(self.flat(config))

    def place(self, config: Any) -> tuple[int, ...] | None:
        """What a ``helion.Config`` is here; None where it is not valid.

        Of a value that is not on a parameter's list it is the nearest.
        """
        try:
            return self.canonical(self._nearest(self._config_gen.flatten(config)))
        except InvalidConfig:
            return None

    # -- private ----------------------------------------------------------------------------

    def _add_slot(
        self, slot: int, name: str, known: list[Any], names: list[str], values: list[Any]
    ) -> None:
        fragment = self._config_gen.flat_spec[slot]
        parts: list[tuple[str, int | None, tuple[Any, ...]]]
        if isinstance(fragment, config_fragment.PermutationFragment):
            self._base[slot] = _helion_places(self._base[slot])
            self._orders.append(slot)
            columns = [tuple(range(n)) for n in range(fragment.length, 1, -1)]
            parts = [(f"{name}.{place}", place, column) for place, column in enumerate(columns)]
        elif isinstance(fragment, config_fragment.ListOf):
            columns = [
                _helion_values(fragment.inner, [value[place] for value in known])
                for place in range(fragment.length)
            ]
            parts = [(f"{name}[{place}]", place, column) for place, column in enumerate(columns)]
            if len(columns) > 1 and min(map(len, columns)) > 1:
                self._lists.append(range(len(names), len(names) + len(columns)))
        else:
            parts = [(name, None, _helion_values(fragment, known))]
        for part_name, place, column in parts:
            if len(column) > 1:
                names.append(part_name)
                values.append(column)
                self._where.append((slot, place))
                numbers = all(type(v) in (int, float) for v in column)
                rising = numbers and list(column) == sorted(column)
                self.ordinal += (rising and slot not in self._orders,)

    def _normalised_flat(self, flat: list[Any]) -> list[Any] | None:
        try:
            copied = copy.deepcopy(flat)  # Helion may change lists in place
            normal: list[Any] = self._config_gen.flatten(self._config_gen.unflatten(copied))
        except InvalidConfig:
            return None
        return normal

    def _normalise(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
        try:
            config = self._config_gen.unflatten(self.flat(key))
        except InvalidConfig:
            return None
        if self._accepts is not None and not self._accepts(config):
            return None
        indices = self._indices(self._config_gen.flatten(config))
        return self._off_the_lists.setdefault(config, key) if indices is None else indices

    def _picked(self, flat: list[Any]) -> list[Any]:
        """The value of each parameter in a flat configuration."""
        flat = list(flat)
        for slot in self._orders:
            flat[slot] = _helion_places(flat[slot])
        return [flat[s] if place is None else flat[s][place] for s, place in self._where]

    def _indices(self, flat: list[Any]) -> tuple[int, ...] | None:
        """None where normalisation gave a value that is not on a parameter's list."""
        pairs = zip(self._index, self._picked(flat), strict=True)
        indices = [index.get(repr(value), -1) for index, value in pairs]
        return None if -1 in indices else tuple(indices)

    def _nearest(self, flat: list[Any]) -> tuple[int, ...]:
        """Indices of a flat configuration; of a thinned range those of the nearest value."""
        indices = []
        for index, column, value in zip(self._index, self._values, self._picked(flat), strict=True):
            at = index.get(repr(value), -1)
            if at < 0 and type(value) is int and all(type(v) is int for v in column):
                at = min(range(len(column)), key=lambda i: abs(column[i] - value))
            indices.append(max(at, 0))
        return tuple(indices)

    def _steps(self, home: tuple[int, ...], adjacent: bool) -> Iterator[tuple[int, ...]]:
        for j, cardinality in enumerate(self.cardinalities):
            for line in (range(home[j] - 1, -1, -1), range(home[j] + 1, cardinality)):
                for i in line:
                    neighbor = self.canonical((*home[:j], i, *home[j + 1 :]))
                    if neighbor is not None and neighbor != home:
                        yield neighbor
                        if adjacent and self.ordinal[j]:
                            break
        for of_list in self._lists:  # element by element may lead through a valley
            for i in range(min(self.cardinalities[j] for j in of_list)):
                same = (*home[: of_list.start], *[i] * len(of_list), *home[of_list.stop :])
                neighbor = self.canonical(same)
                if neighbor is not None:
                    yield neighbor

    def _near_a_leader(self, drawn: tuple[int, ...], far: bool) -> tuple[int, ...]:
        """One of the best with some parameters changed: a log-uniform number, up to half of them.

        Half of those that have an order move to the value beside, the others to what was drawn. The
        starts count as the last of the best; ranks are log-uniform, too.
        """
        known = list(dict.fromkeys([*self.leaders, *self.starts]))
        if not (known and drawn):
            return drawn
        mixed = list(known[_helion_log_uniform(len(known)) - 1])
        most = len(drawn) if far else (len(drawn) + 1) // 2
        for j in random.sample(range(len(drawn)), _helion_log_uniform(most)):
            beside = mixed[j] + random.choice((-1, 1))  # noqa: S311
            if self.ordinal[j] and 0 <= beside < self.cardinalities[j] and random.random() < 0.5:  # noqa: S311
                mixed[j] = beside
            else:
                mixed[j] = drawn[j]
        return tuple(mixed)

    def _filled(self, configs: dict[tuple[int, ...], None], n: int) -> list[tuple[int, ...]]:
        """``configs`` with random configurations up to ``n``; fewer where they are hard to find.

        Half of the values are drawn as Helion's backend advises, half uniformly.
        """
        configs, generation, draws, last_new = dict(configs), self._config_gen, 0, 0
        starts = set(self.starts)  # they have had their turn
        patience = min(8 * n + 64, HELION_MOST_DRAWS // 4)
        state = random.getstate()  # Helion draws from it
        random.seed(int(self._rng.integers(1 << 62)))
        try:
            while len(configs) < n and draws - last_new < (
                patience if configs else HELION_MOST_DRAWS
            ):
                draw = generation.random_flat if draws % 2 else generation.biased_random_flat
                draws += 1
                far = draws - last_new > HELION_NOTHING_NEAR
                config = self.canonical(self._near_a_leader(self._nearest(draw()), far))
                if config is not None and config not in configs and config not in starts:
                    configs[config], last_new = None, draws
        finally:
            random.setstate(state)
        return list(configs)[:n]


def _helion_log_uniform(most: int) -> int:
    """1 to ``most``, the small ones more often."""
    return int((most + 1) ** random.random())  # noqa: S311


def _helion_keeping(config_gen: Any) -> Any:
    """A copy that keeps what Helion works out anew for each configuration, four times as fast.

    The answers are constants of a kernel's ConfigSpec. A version of Helion that does not ask these
    questions (all are private) is as fast as it is.
    """
    copied = copy.copy(config_gen)
    copied.config_spec = copy.copy(config_gen.config_spec)
    for owner, name in ((copied, "_fragment_default_flat"), (copied.config_spec, "_flat_fields")):
        if hasattr(owner, name):
            setattr(owner, name, functools.partial(copy.copy, getattr(owner, name)()))
    if hasattr(copied.config_spec, "supports_config_key"):
        supports_config_key = copied.config_spec.supports_config_key
        copied.config_spec.supports_config_key = functools.cache(supports_config_key)
    return copied


def _helion_slot_names(config_gen: Any) -> list[str]:
    names = [""] * len(config_gen.flat_spec)
    for key, (slots, is_sequence) in config_gen._key_to_flat_indices.items():
        for place, slot in enumerate(slots):
            names[slot] = f"{key}[{place}]" if is_sequence else key
    return names


def _helion_values(fragment: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """A fragment's values in its own order, with those ``known`` to occur.

    An integer's range of more than 64 values is thinned, evenly in its logarithm where it starts
    above 0.
    """
    if isinstance(fragment, config_fragment.PowerOfTwoFragment):
        low, high = fragment.low.bit_length() - 1, fragment.high.bit_length()
        values = [1 << exponent for exponent in range(low, high)]
    elif isinstance(fragment, config_fragment.BaseIntegerFragment):
        values = _helion_range(fragment.low, fragment.high)
    elif isinstance(fragment, config_fragment.EnumFragment):
        values = list(getattr(fragment, "search_choices", None) or fragment.choices)
    elif isinstance(fragment, config_fragment.BooleanFragment):
        values = [False, True]
    elif isinstance(fragment, config_fragment.NumThreadsFragment):
        values = [0, *(1 << exponent for exponent in range(fragment.high.bit_length()))]
    else:
        values = []
    by_repr = {repr(value): value for value in [*values, *known]}
    if all(type(value) is int for value in by_repr.values()):
        return tuple(sorted(by_repr.values()))
    return tuple(by_repr.values())


def _helion_range(low: int, high: int) -> list[int]:
    if high - low < HELION_MOST_VALUES:
        return list(range(low, high + 1))
    spaced = np.geomspace if low > 0 else np.linspace
    return [*dict.fromkeys(int(v) for v in np.rint(spaced(low, high, HELION_MOST_VALUES)))]


def _helion_places(order: Sequence[int]) -> list[int]:
    """A permutation as, for each place, the rank of its element among those that are left."""
    return [sum(other < element for other in order[i:]) for i, element in enumerate(order)]


def _helion_shown(value: Any) -> Any:
    """A value as the contract allows it: a number, a text, a bool or None."""
    return value if value is None or isinstance(value, int | float | str) else repr(value)
