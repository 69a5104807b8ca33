"""From the text of an answer to the source code of one optimizer.

Accepted: fenced code (backticks or tildes, any language tag, any indentation), bare code without a
fence, SEARCH/REPLACE blocks for "diff-edit"; with prose around, a byte-order mark, any line ends
and a leading <think> section. Of several fenced blocks that define an optimizer class the last
counts, unless it is under half as long as the longest (then it is an excerpt, and the longest
counts). Everything is linear in the text.

Not here: whether the code is an acceptable program (``programs``).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from llamea_gpu.errors import AnswerError
from llamea_gpu.prompting.context import Operator, ParentView
from llamea_gpu.prompting.edits import apply_edits, has_edits, parse_edits

MAX_ANSWER_CHARS = 200_000

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(?![`~])([^`]*)")
_CLASS = re.compile(r"^[ \t]*class[ \t]+\w+[ \t]*[(:]", re.MULTILINE)
_CALL = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+__call__\b", re.MULTILINE)
_CODE_START = re.compile(
    r"(?:from[ \t]+[\w.]+[ \t]+import\b|import[ \t]+[\w.]+[ \t]*(?:,|as\b|#|$)"
    r"|class[ \t]+\w+[ \t]*[(:]|def[ \t]+\w+[ \t]*\(|@\w)"
)
_CODE_GOES_ON = re.compile(
    r"[ \t#)\]}]|[A-Za-z_]\w*[ \t]*(?::[^=]*)?=|(?:try|else|finally|except\b.*|if[ \t].*):[ \t]*$"
)


def parse_answer(text: str, operator: Operator, parents: Sequence[ParentView] = ()) -> str:
    """The program's source that an answer to ``operator`` proposes, "\\n" line ends.

    Args:
        text: the answer; untrusted.
        operator: what was asked; SEARCH/REPLACE blocks are only read for "diff-edit", where a
            complete class is accepted too.
        parents: as in the prompt; blocks apply to the first.

    Raises:
        AnswerError: with a kind ("empty", "too-long", "truncated", "no-class", "unchanged"
            or one of ``edits``) and one sentence for the model.
        ValueError: a "diff-edit" without a parent.
    """
    if operator == "diff-edit" and not parents:
        raise ValueError("a diff-edit changes a parent, but got none: pass the parent shown")
    body = _body(text)
    if operator == "diff-edit" and has_edits(body):
        return _tidy(apply_edits(_tidy(parents[0].source), parse_edits(body)))
    source = _tidy(_code(body))
    for parent in parents:
        if source == _tidy(parent.source):
            raise AnswerError(
                "unchanged",
                f"The answer repeats {parent.identifier!r} unchanged: write one that differs.",
            )
    return source


def _body(text: str) -> str:
    """The answer proper: line ends unified, the thinking left out."""
    if len(text) > MAX_ANSWER_CHARS:
        raise AnswerError(
            "too-long",
            f"An answer may have {MAX_ANSWER_CHARS:,} characters, but this one has {len(text):,}.",
        )
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif text.lstrip().startswith("<think>"):
        raise AnswerError("truncated", "The answer ended before the thinking did: think less.")
    if not text.strip():
        raise AnswerError("empty", "The answer is empty: write the class in one fenced block.")
    return text


def _code(text: str) -> str:
    """The program in ``text``, from a fence or bare."""
    blocks, unclosed = _fenced_blocks(text)
    if not _CLASS.search(unclosed):
        code = _complete_block(blocks) or _bare_code(text)
        if code is not None:
            return code
    if unclosed.strip():
        raise AnswerError(
            "truncated",
            "The code block never ends: the answer was cut off, or the closing fence is missing.",
        )
    raise AnswerError(
        "no-class",
        "The answer defines no class: write one Python class with __init__ and "
        "__call__(self, evaluate, space, rng) in one fenced block.",
    )


def _complete_block(blocks: Sequence[str]) -> str | None:
    """The block that holds the optimizer, by the rule in the module's docstring."""
    classes = [code for code in blocks if _CLASS.search(code)]
    optimizers = [code for code in classes if _CALL.search(code)] or classes
    if not optimizers:
        return None
    longest = max(optimizers, key=len)
    return optimizers[-1] if 2 * len(optimizers[-1]) >= len(longest) else longest


def _fenced_blocks(text: str) -> tuple[list[str], str]:
    """Fenced blocks by CommonMark's rules: a fence closes with its own sign, at least as long.

    A fence indented four columns deeper than the opening one is content (a docstring's example).
    What the text ends inside of is apart: the second, empty where it ends outside.
    """
    blocks: list[str] = []
    content: list[str] | None = None
    opening, depth = "", 0
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if content is None:
            if fence:
                content, opening, depth = [], fence[2], len(fence[1])
        elif (
            fence
            and fence[2].startswith(opening)
            and not fence[3].strip()
            and len(fence[1]) < depth + 4
        ):
            blocks.append(textwrap.dedent("\n".join(content)))
            content = None
        else:
            content.append(line)
    return blocks, textwrap.dedent("\n".join(content or ()))


def _bare_code(text: str) -> str | None:
    """Code without a fence: from the first line that opens a program to the first line of prose."""
    lines = [line for line in text.split("\n") if not _FENCE.fullmatch(line)]
    start = next((row for row, line in enumerate(lines) if _CODE_START.match(line)), None)
    if start is None:
        return None
    stop = start
    while stop < len(lines) and _is_code(lines[stop]):
        stop += 1
    code = "\n".join(lines[start:stop])
    return code if _CLASS.search(code) else None


def _is_code(line: str) -> bool:
    return not line.strip() or bool(_CODE_START.match(line) or _CODE_GOES_ON.match(line))


def _tidy(source: str) -> str:
    """Blank lines around removed, one line end at the end."""
    return source.strip("\n").rstrip() + "\n"
