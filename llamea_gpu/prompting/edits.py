"""SEARCH/REPLACE blocks: reading them from an answer and applying them to a program.

    <<<<<<< SEARCH
    lines as they stand in the program
    =======
    lines to put in their place
    >>>>>>> REPLACE

Blocks match whole lines and are applied in order, each to the result of the one before. A block is
looked for exactly first, then without trailing blanks, then with its indentation shifted as a
whole; each of these only counts when it matches at exactly one place. Nothing is ever skipped:
one block that misses refuses the answer. Every step is linear in the text.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llamea_gpu.errors import AnswerError

_SEARCH = re.compile(r" {0,3}<{5,9} ?SEARCH\s*", re.IGNORECASE)
_DIVIDER = re.compile(r" {0,3}={5,9}\s*")
_REPLACE = re.compile(r" {0,3}>{5,9} ?REPLACE\s*", re.IGNORECASE)
_SHOWN_CHARS = 80
# Each block is looked for in the whole program; more of them are a rewrite.
MAX_EDITS = 200


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines to find, and the lines to put in their place (without line ends)."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def has_edits(text: str) -> bool:
    """Whether any line opens a SEARCH block."""
    return any(_SEARCH.fullmatch(line) for line in text.split("\n"))


def parse_edits(text: str) -> tuple[Edit, ...]:
    """The blocks of ``text`` ("\\n" line ends), in order; what stands between is ignored.

    Raises:
        AnswerError: "truncated" when the last block never ends, "malformed-edit" when a marker is
            missing inside, "too-long" for too many blocks, "no-edits" when there is none.
    """
    edits: list[Edit] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    for line in text.split("\n"):
        if _SEARCH.fullmatch(line):
            if search is not None:
                raise _malformed(len(edits) + 1, "a new SEARCH marker before its REPLACE marker")
            search = []
        elif search is None:
            continue
        elif _REPLACE.fullmatch(line):
            if replace is None:
                raise _malformed(len(edits) + 1, "no ======= line before its REPLACE marker")
            edits.append(Edit(tuple(search), tuple(replace)))
            if len(edits) > MAX_EDITS:
                raise AnswerError(
                    "too-long",
                    f"An answer may have {MAX_EDITS} SEARCH/REPLACE blocks at most: change less, "
                    f"or write the whole class in one fenced block.",
                )
            search = replace = None
        elif replace is not None:
            replace.append(line)
        elif _DIVIDER.fullmatch(line):
            replace = []
        else:
            search.append(line)
    if search is not None:
        raise AnswerError(
            "truncated",
            f"SEARCH/REPLACE block {len(edits) + 1} never reaches its '>>>>>>> REPLACE' line: "
            f"the answer was cut off or the marker is missing.",
        )
    if not edits:
        raise AnswerError("no-edits", "The answer holds no SEARCH/REPLACE block.")
    return tuple(edits)


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """``source`` with every edit applied.

    Raises:
        AnswerError: "missed-search", "ambiguous-search" or "malformed-edit" naming the block,
            "unchanged" when the result is ``source``.
    """
    lines = source.split("\n")
    for number, edit in enumerate(edits, start=1):
        lines = _apply(lines, edit, number)
    if "\n".join(lines) == source:
        raise AnswerError(
            "unchanged", "The SEARCH/REPLACE blocks leave the program exactly as it was."
        )
    return "\n".join(lines)


def _apply(lines: list[str], edit: Edit, number: int) -> list[str]:
    search = list(edit.search)
    if not any(line.strip() for line in search):
        raise _malformed(number, "an empty SEARCH part; to insert, search for the line beside it")
    attempts: tuple[Callable[[list[str], list[str]], list[int]], ...] = (
        _find_exact,
        _find_ignoring_trailing_blanks,
        _find_shifted,
    )
    for find in attempts:
        places = find(lines, search)
        if len(places) > 1:
            raise AnswerError(
                "ambiguous-search",
                f"The SEARCH part of block {number} matches more than one place (lines "
                f"{places[0] + 1} and {places[1] + 1}): add neighbouring lines until it is unique.",
            )
        if places:
            start = places[0]
            replace = _shifted(edit.replace, search, lines[start : start + len(search)])
            return lines[:start] + replace + lines[start + len(search) :]
    raise AnswerError("missed-search", _missed(lines, search, number))


def _find_exact(lines: list[str], search: list[str]) -> list[int]:
    """The first two places where ``search`` stands as whole lines (str.find is linear)."""
    haystack = "\n" + "\n".join(lines) + "\n"
    needle = "\n" + "\n".join(search) + "\n"
    places: list[int] = []
    position = haystack.find(needle)
    while position >= 0 and len(places) < 2:
        places.append(haystack.count("\n", 0, position))
        position = haystack.find(needle, position + 1)
    return places


def _find_ignoring_trailing_blanks(lines: list[str], search: list[str]) -> list[int]:
    return _find_exact([line.rstrip() for line in lines], [line.rstrip() for line in search])


def _find_shifted(lines: list[str], search: list[str]) -> list[int]:
    """Places that differ from ``search`` by one shift of the whole block to the left or right."""
    places = _find_exact([line.strip() for line in lines], [line.strip() for line in search])
    target = _dedented(search)
    return [place for place in places if _dedented(lines[place : place + len(search)]) == target]


def _dedented(lines: Sequence[str]) -> list[str]:
    return textwrap.dedent("\n".join(line.rstrip() for line in lines)).split("\n")


def _shifted(replace: Sequence[str], search: Sequence[str], original: Sequence[str]) -> list[str]:
    """``replace`` moved right or left by as much as ``original`` stands from ``search``."""
    wrote = _indentation(search)
    stands = _indentation(original)
    if wrote == stands:
        return list(replace)
    if stands.startswith(wrote):
        more = stands[len(wrote) :]
        return [more + line if line.strip() else line for line in replace]
    less = len(wrote) - len(stands)
    return [line[min(less, len(line) - len(line.lstrip())) :] for line in replace]


def _indentation(lines: Sequence[str]) -> str:
    """The blanks before the first line that has text."""
    first = next(line for line in lines if line.strip())
    return first[: len(first) - len(first.lstrip())]


def _missed(lines: list[str], search: list[str], number: int) -> str:
    """Names the first line of the block that the program lacks, and the program's nearest line."""
    known = {line.strip(): row for row, line in reversed(list(enumerate(lines))) if line.strip()}
    search_lines = [line.strip() for line in search if line.strip()]
    strange = next((line for line in search_lines if line not in known), None)
    if strange is None:
        return (
            f"The SEARCH part of block {number} is not in the program: its lines exist (the first "
            f"is line {known[search_lines[0]] + 1}), but not one after the other as written."
        )
    shortened = {line[:_SHOWN_CHARS]: row for line, row in known.items()}
    nearest = difflib.get_close_matches(strange[:_SHOWN_CHARS], list(shortened), n=1, cutoff=0.4)
    hint = f"; the nearest line is {shortened[nearest[0]] + 1}, `{nearest[0]}`" if nearest else ""
    return (
        f"The SEARCH part of block {number} is not in the program, which has no line "
        f"`{strange[:_SHOWN_CHARS]}`{hint}."
    )


def _malformed(number: int, problem: str) -> AnswerError:
    return AnswerError("malformed-edit", f"SEARCH/REPLACE block {number} has {problem}.")
