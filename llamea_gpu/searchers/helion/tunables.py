"""A recorded space as Helion's tunables, and Helion's configurations as the space's.

Every parameter becomes the fragment with which Helion declares such values itself: consecutive
powers of two a ``PowerOfTwoFragment``, consecutive integers an ``IntegerFragment``, everything else
an ``EnumFragment``. The fragments' defaults are the configuration that a search starts from.

With ``roles``, powers of two named ``block...`` and ``num_warps`` are a ``BlockSizeFragment`` and a
``NumWarpsFragment``, as in a Helion kernel. Its searches change those more often and in pairs, and
a random configuration's blocks are shrunk to what its warps can hold.

Helion's tunables know no constraints, so it also proposes grid points that are not valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from helion import Config
from helion.autotuner.config_fragment import (
    BlockSizeFragment,
    ConfigSpecFragment,
    EnumFragment,
    IntegerFragment,
    NumWarpsFragment,
    PowerOfTwoFragment,
)

from llamea_gpu.contract import Configuration, Space, Value


class Tunables:
    """The parameters of ``space``, as Helion sees them, with ``start`` as their default.

    ``fragments`` are Helion's, by name.
    """

    def __init__(self, space: Space, start: Configuration, *, roles: bool) -> None:
        self._space = space
        self._indices = [
            {value: index for index, value in enumerate(values)} for values in space.values
        ]
        self.fragments: dict[str, ConfigSpecFragment] = {
            name: _fragment(name if roles else "", values, values[index])
            for name, values, index in zip(space.names, space.values, start, strict=True)
        }

    def config(self, configuration: Configuration) -> Config:
        """What ``configuration`` is to Helion."""
        pairs = zip(self._space.names, self._space.values, configuration, strict=True)
        return Config.from_dict({name: values[index] for name, values, index in pairs})

    def configuration(self, config: Mapping[str, Any]) -> Configuration | None:
        """What ``config``, a ``helion.Config``, is in the space; None when it is not valid."""
        value_indices = []
        for name, indices in zip(self._space.names, self._indices, strict=True):
            # Helion drops None from the fields that it knows, and a model may write a list.
            value = config.get(name)
            index = indices.get(value) if isinstance(value, Value) else None
            if index is None:
                return None
            value_indices.append(index)
        configuration = tuple(value_indices)
        return configuration if self._space.contains(configuration) else None


def _fragment(name: str, values: tuple[Value, ...], default: Value) -> ConfigSpecFragment:
    if len(values) > 1 and all(type(value) is int for value in values):
        rising = sorted(cast("tuple[int, ...]", values))
        low, high = rising[0], rising[-1]
        if (
            low > 0
            and low & (low - 1) == 0
            and rising == [low << step for step in range(len(rising))]
        ):
            return _power_fragment(name)(low, high, default)
        if high - low == len(rising) - 1:
            return IntegerFragment(low, high, default)
    # Its default is its first choice.
    return EnumFragment((default, *(value for value in values if value != default)))


def _power_fragment(name: str) -> Callable[[int, int, Value], ConfigSpecFragment]:
    kind: Callable[[int, int, Value], ConfigSpecFragment] = PowerOfTwoFragment
    if name == "num_warps":
        kind = NumWarpsFragment
    elif name.startswith("block"):
        kind = BlockSizeFragment
    return kind
