"""Prompts rendered, answers parsed, programs admitted: everything between a run and a model's text.

``render`` makes the two messages of an operator, ``parse_answer`` finds the source code in the
answer, ``admit`` turns it into a ``Program``. Both refuse with an ``AnswerError`` whose message is
one sentence for the "repair" prompt and whose kind is one of

    empty too-long truncated no-class unchanged                    (the answer)
    no-edits malformed-edit missed-search ambiguous-search              (SEARCH/REPLACE)
    syntax too-deep forbidden-import forbidden-call top-level undefined-name
    swallows-budget unseeded threads                                    (the program)
    ambiguous-class signature no-defaults                               (the class)

Not here: sending prompts (``llm``), running programs (``sandbox``), choosing parents
(``evolution``).
"""

from llamea_gpu.prompting.admission import admit
from llamea_gpu.prompting.answers import parse_answer
from llamea_gpu.prompting.context import (
    OPERATORS,
    Feedback,
    Operator,
    ParentView,
    PromptContext,
    SpaceFacts,
    SpaceResult,
    Stage,
)
from llamea_gpu.prompting.program import Program
from llamea_gpu.prompting.render import render
from llamea_gpu.prompting.screening import ALLOWED_MODULES, ALLOWED_PACKAGES

__all__ = [
    "ALLOWED_MODULES",
    "ALLOWED_PACKAGES",
    "OPERATORS",
    "Feedback",
    "Operator",
    "ParentView",
    "Program",
    "PromptContext",
    "SpaceFacts",
    "SpaceResult",
    "Stage",
    "admit",
    "parse_answer",
    "render",
]
