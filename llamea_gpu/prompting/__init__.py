"""Prompts rendered, answers parsed: everything between a run and a model's text.

``render`` makes the two messages of an operator, ``parse_answer`` finds the source code in the
answer. It refuses with an ``AnswerError`` whose message is one sentence for the "repair" prompt and
whose kind is one of

    empty too-long truncated no-class unchanged                    (the answer)
    no-edits malformed-edit missed-search ambiguous-search              (SEARCH/REPLACE)

Not here: admitting what was found (``programs``), sending prompts (``llm``), running programs
(``sandbox``), choosing parents (``evolution``).
"""

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
    Tried,
)
from llamea_gpu.prompting.render import render

__all__ = [
    "OPERATORS",
    "Feedback",
    "Operator",
    "ParentView",
    "PromptContext",
    "SpaceFacts",
    "SpaceResult",
    "Stage",
    "Tried",
    "parse_answer",
    "render",
]
