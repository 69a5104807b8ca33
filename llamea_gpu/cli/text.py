"""Foreign text on a terminal: what a model wrote, or an archive from elsewhere holds."""

from __future__ import annotations

import re

from rich.markup import escape

# C0 and C1 controls but tab and line feed: among them is what moves cursors and sets titles.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """``text`` without control characters."""
    return _CONTROL.sub("", text)


def cell(text: str) -> str:
    """``text`` as it is to appear where markup is read: in tables and messages."""
    return escape(plain(text))
