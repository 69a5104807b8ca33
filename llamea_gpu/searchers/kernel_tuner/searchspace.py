"""Kernel Tuner's `Searchspace` over a contract's ``space``: the real class, built from a list.

Its constructor solves constraints; here the valid configurations are known, and the constructor's
own ``from_cache`` takes them. They come in lexicographic order of their value indices, which is the
order that Kernel Tuner's "bruteforce" framework gives; a recording does not know the constraints on
which the order of its default solver depends.

What it does not do: change what a Searchspace answers. A run's neighbours are looked up in a table
that the runs of a process share, and every answer is a fresh copy of what the class itself found.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from kernel_tuner.searchspace import Searchspace

from llamea_gpu.contract import Configuration, Space, Value
from llamea_gpu.errors import SearcherError

# What Kernel Tuner's simulated device claims, so that no restriction on threads is added.
_MAX_THREADS = 1_000_000_000
_KEPT_SPACES = 8
_KEPT_NEIGHBORHOODS = 50_000  # of a space: about 25 MB

Neighborhoods = dict[tuple[str, tuple[Value, ...]], npt.NDArray[np.intp]]


class ListedSearchspace(Searchspace):  # type: ignore[misc]
    """A Searchspace of listed configurations.

    ``positions`` is, for each configuration of ``list``, what the contract calls it. Both are in
    the same order.
    """

    def __init__(self, space: Space) -> None:
        """Take the valid configurations of ``space``.

        Raises:
            SearcherError: they cannot be counted.
        """
        if space.size is None:
            raise SearcherError(
                "Kernel Tuner's strategies need a space whose valid configurations can be listed, "
                "but this one cannot be counted"
            )
        names, values = space.names, space.values
        positions = list(map(tuple, space.pool(space.size).tolist()))
        entries = (
            {name: choices[i] for name, choices, i in zip(names, values, position, strict=True)}
            for position in positions
        )
        tune_params = {name: list(choices) for name, choices in zip(names, values, strict=True)}
        super().__init__(
            None,
            None,
            None,
            from_cache={"tune_params": tune_params, "cache": dict(enumerate(entries))},
        )
        self.max_threads = _MAX_THREADS
        self.positions: list[Configuration] = positions
        self.neighborhoods: Neighborhoods = {}
        self._leaders: list[int] = []

    def begin_with(self, measured: Sequence[Configuration]) -> None:
        """Let random samples begin with these, each once: what another search has measured."""
        if measured:
            rows = {position: row for row, position in enumerate(self.positions)}
            self._leaders = [rows[config] for config in measured]

    def get_random_sample_indices(self, num_samples: int) -> npt.NDArray[np.intp]:
        """As in the class, but for `begin_with`."""
        drawn: npt.NDArray[np.intp] = super().get_random_sample_indices(num_samples)
        if not self._leaders:
            return drawn
        served = self._leaders[:num_samples]
        del self._leaders[:num_samples]
        others = [row for row in drawn.tolist() if row not in served]
        return np.array([*served, *others][:num_samples])

    def get_neighbors_indices_no_cache(
        self,
        param_config: tuple[Value, ...],
        neighbor_method: str | None = None,
        build_full_cache: bool = False,
    ) -> Any:
        """As in the class; what the same question has once found is not computed again."""
        method = self.neighbor_method if neighbor_method is None else neighbor_method
        key = (method, param_config)
        if key not in self.neighborhoods:
            neighborhood = super().get_neighbors_indices_no_cache(
                param_config, neighbor_method, build_full_cache
            )
            if build_full_cache or len(self.neighborhoods) >= _KEPT_NEIGHBORHOODS:
                return neighborhood
            self.neighborhoods[key] = neighborhood
        return self.neighborhoods[key].copy()


_kept: OrderedDict[tuple[object, ...], ListedSearchspace] = OrderedDict()


def fresh_searchspace(space: Space) -> ListedSearchspace:
    """A Searchspace as good as new, for one run; the space's tables are made once a process.

    Nothing that a run changes is shared with the next one: the class keeps neighbours that it has
    handed out, and some of its methods depend on which those are.
    """
    # Values as text, because 1 == 1.0 == True.
    listed = space.pool(space.size).tobytes() if space.size is not None else b""
    key = (space.names, repr(space.values), listed)
    pattern = _kept.pop(key, None)
    if pattern is None:
        pattern = ListedSearchspace(space)
        pattern.get_list_param_indices_numpy()
    _kept[key] = pattern
    if len(_kept) > _KEPT_SPACES:
        _kept.popitem(last=False)
    return _copied(pattern)


def _copied(pattern: ListedSearchspace) -> ListedSearchspace:
    """A deep copy but for what no run changes: tuples, tables of indices, known neighbours."""
    shared = (
        pattern.get_list_dict(),
        pattern.get_list_param_indices_numpy(),
        pattern.positions,
        pattern.neighborhoods,
    )
    memo: dict[int, Any] = {id(part): part for part in shared}
    memo[id(pattern.list)] = list(pattern.list)
    return copy.deepcopy(pattern, memo)
