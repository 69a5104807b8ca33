"""What a page shows: charts with a sentence and a table each, so that none depends on being seen.

Figures are Plotly's JSON form as plain data. Colours in them are tokens ("@ink", "@s1", "@s1/20"
for 20 % of it, "@sequential", "@diverging"), which the page replaces by those of its theme.

It does not compute what is shown, and does not import Plotly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from llamea_gpu.prompting import OPERATORS

Figure = dict[str, Any]

# Dashes and symbols repeat at another pace than the eight colours: no series is told by hue alone.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")
PATTERNS = ("", "/", "x", ".", "-", "\\", "+", "|")
COLOURS = 8
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as text: ``columns`` are headings, ``rows`` their cells.

    ``text`` names the columns that are words (left-aligned), ``caption`` is what a screen reader
    announces. ``slots`` are candidates that the rows open, one a row, where they do.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: frozenset[int] = frozenset({0})
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure: ``key`` is its id in the page, ``summary`` says in words what it shows."""

    kind: ClassVar[str] = "chart"
    key: str
    title: str
    summary: str
    figure: Figure
    table: Table | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Prose:
    """A heading and sentences; a sentence is plain text."""

    kind: ClassVar[str] = "prose"
    title: str
    sentences: tuple[str, ...]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, as small print."""

    kind: ClassVar[str] = "facts"
    title: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A program, in the page itself: it can be read without JavaScript."""

    kind: ClassVar[str] = "code"
    title: str
    source: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The family tree with its controls and the details of the candidate that is selected.

    ``by_generation`` is the same tree in its other arrangement.
    """

    kind: ClassVar[str] = "tree"
    chart: Chart
    by_generation: Figure


Block = Table | Chart | Prose | Facts | Code | Tree


@dataclass(frozen=True, slots=True)
class Section:
    """One tab: blocks, then sections that are tabs in it."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    children: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """A number worth a box of its own; ``note`` stands under it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report. ``details`` is JSON for the page's script, ``running`` says that it is of a
    run under way, and when it was written; ``scale`` says what scores of 0 and 1 are.
    """

    title: str
    kind: str
    sentences: tuple[str, ...]
    boxes: tuple[Box, ...]
    sections: tuple[Section, ...]
    details: Mapping[str, Any] | None = None
    running: str = ""
    scale: str = "P is 1 for the optimum at once, 0 for random search"


def label(text: str) -> str:
    """``text`` for a Plotly label, which would read tags and links in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Names for charts: a file without its folders, where that leaves all names distinct."""
    short = {name: name.rsplit("/", 1)[-1] if ".py" in name else name for name in names}
    if len(set(short.values())) < len(short):
        return {name: name for name in names}
    return short


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, "automargin": True, "zeroline": False, **more}


def figure(
    traces: Sequence[Mapping[str, Any]],
    *,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    height: int = 340,
    **layout: Any,
) -> Figure:
    """A figure with one pair of axes."""
    return {
        "data": [dict(trace) for trace in traces],
        "layout": {"height": height, "xaxis": dict(x), "yaxis": dict(y), **layout},
    }


def colour(place: int) -> str:
    """The token of series number ``place``, from 0."""
    return f"@s{place % COLOURS + 1}"


def line(place: int) -> dict[str, Any]:
    """How the line of series number ``place`` is drawn: two of one colour have other dashes."""
    return {"color": colour(place), "dash": DASHES[place % len(DASHES)], "width": 2}


def lines(name: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A trace of lines; None in ``x`` and ``y`` parts them."""
    return {"type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": list(y), **more}


def marks(name: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A trace of marks."""
    return lines(name, x, y, **{"mode": "markers", **more})


def operator_style(name: str) -> tuple[str, str, str]:
    """Colour token, symbol and pattern of bars of an operator, the same in every chart."""
    place = OPERATORS.index(name) if name in OPERATORS else len(OPERATORS)
    return colour(place), SYMBOLS[place % len(SYMBOLS)], PATTERNS[place % len(PATTERNS)]


def number(value: float | None, digits: int = 3) -> str:
    """``value`` with a true minus sign, or a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def signed(value: float | None, digits: int = 3) -> str:
    """``value`` with its sign."""
    text = number(value, digits)
    return f"+{text}" if value is not None and math.isfinite(value) and value > 0 else text


def score(p: float | None, standard_error: float | None) -> str:
    """``P ± s.e.`` as far as it is known."""
    if p is None or standard_error is None:
        return number(p)
    return f"{number(p)} ± {number(standard_error)}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def count(n: int, noun: str, plural: str = "") -> str:
    """``1 answer``, ``2 answers``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def plain_json(value: Any) -> Any:
    """``value`` with every number that JSON cannot hold replaced by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value
