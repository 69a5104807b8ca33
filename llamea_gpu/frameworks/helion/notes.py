"""What a reader of a Helion space has to know that its values do not say."""

from __future__ import annotations

from collections.abc import Sequence

_ORDER_NOTE = (
    "A parameter such as loop_orders[0].1 says which of the dimensions that are left comes at that "
    "place, counted from 0; the last place needs no parameter."
)
_NORMALISED_NOTE = (
    "Helion normalises configurations: a setting without a meaning beside the others is ignored."
)


def notes_on(names: Sequence[str]) -> tuple[str, ...]:
    """One line each, for a space with these parameters."""
    has_orders = any("." in name for name in names)
    return (*([_ORDER_NOTE] if has_orders else []), _NORMALISED_NOTE)
