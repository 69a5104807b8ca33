"""How numbers and foreign text are written into a prompt: the templates' filters.

Numbers are rounded, so that a prompt does not change with the last bits of a float; what depends
on the host carries a leading "≈". Text from models and tracebacks is bounded, freed of control
characters and memory addresses, and fenced so that it cannot end its own fence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_TRACEBACK_LINES = 20
_TRACEBACK_CHARS = 2_000
_CLIPPED_CHARS = 60_000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,16}\b")
_BACKTICKS = re.compile(r"`{3,}")
# C0 and C1 without tab and line feed, and lone surrogates, which no transport can encode.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def score(value: float, sign: bool = False) -> str:
    """Three decimals, without a negative zero; "+0.120" with ``sign``."""
    if not math.isfinite(value):
        return "-"
    value = round(value, 3) + 0.0
    return f"{value:+.3f}" if sign else f"{value:.3f}"


def number(value: float) -> str:
    """Two decimals."""
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "-"


def count(value: float) -> str:
    """1,234; one decimal below 100 where there is one."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) < 100 and round(value, 1) % 1 else f"{round(value):,}"


def percent(share: float) -> str:
    """A share as "41 %", "4.1 %", "0.41 %": about two digits."""
    value = 100 * share
    if not math.isfinite(value):
        return "-"
    if value and abs(value) < 0.01:
        return "< 0.01 %"
    decimals = 0 if abs(value) >= 9.95 or not value else 1 if abs(value) >= 0.995 else 2
    return f"{value:.{decimals}f} %"


def regret(value: float) -> str:
    """A regret as a percentage; infinite where a run found nothing that works."""
    return percent(value) if math.isfinite(value) else "nothing valid"


def ratio(value: float) -> str:
    """Two digits or so: 1.32, 12.4, 130."""
    return f"{value:.3g}" if value < 1_000 else f"{round(value):,}"


def seconds(value: float) -> str:
    """Two significant digits, never in exponents."""
    return f"{value:.2g}" if 0.001 <= value < 100 else f"{round(value, 3):g}"


def host_seconds(value: float) -> str:
    """Seconds of this host, marked as such."""
    return f"≈{value:.2f} s" if math.isfinite(value) else "-"


def ms(value: float) -> str:
    """Milliseconds in four significant digits; "failed" for a configuration that does not work."""
    return f"{value:.4g} ms" if math.isfinite(value) else "failed"


def span(values: Iterable[float], written: Callable[[float], str] = count) -> str:
    """The least and the greatest, or the one value there is."""
    low, high = written(min(values := list(values))), written(max(values))
    return low if low == high else f"{low} to {high}"


def spread(values: Iterable[float]) -> str:
    """The same in two decimals."""
    return span(values, number)


def one_line(text: str, limit: int) -> str:
    """Blanks collapsed, at most ``limit`` characters."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def traceback(text: str) -> str:
    """The end of a traceback or problem, where the error stands; addresses masked."""
    clean = _ADDRESS.sub("0x…", _CONTROL.sub("", text.strip()))
    lines = clean[-_TRACEBACK_CHARS:].split("\n")[-_TRACEBACK_LINES:]
    shown = "\n".join(lines)
    return shown if len(shown) == len(clean) else "…\n" + shown


def clipped(text: str) -> str:
    """The beginning of a failed answer, which may have any length."""
    clean = _CONTROL.sub("", text.replace("\r\n", "\n").strip())
    if len(clean) <= _CLIPPED_CHARS:
        return clean
    return clean[:_CLIPPED_CHARS] + f"\n… ({len(clean) - _CLIPPED_CHARS:,} characters more)"


def fenced(text: str, language: str) -> str:
    """``text`` between fences longer than any in it."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def line_count(text: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in text.split("\n") if line.strip())


# By the name under which templates use them.
FILTERS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        clipped,
        count,
        fenced,
        host_seconds,
        line_count,
        ms,
        number,
        one_line,
        percent,
        ratio,
        regret,
        score,
        seconds,
        span,
        spread,
        traceback,
    )
}
