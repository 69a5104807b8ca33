"""Short quotations of what a file holds, for messages: however large the input, a few lines.

It changes nothing about what is stored.
"""

from __future__ import annotations

import reprlib


class _Quoting(reprlib.Repr):
    """``repr`` that looks at the beginning of strings and containers only."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 8
        self.maxstring = self.maxother = 120
        self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        """Python itself refuses to spell integers of more than 4300 digits."""
        if x.bit_length() > 1024:
            return f"<an integer of {x.bit_length()} bits>"
        return super().repr_int(x, level)


def quoted(value: object) -> str:
    """``repr(value)``, shortened to some hundred characters; never raises for JSON values."""
    text = _Quoting().repr(value)
    return text if len(text) <= 400 else text[:400] + "…"


def shortened(text: str) -> str:
    """``text`` without quotation marks, its first 100 characters only."""
    return text if len(text) <= 100 else text[:100] + "…"
