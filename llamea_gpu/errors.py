"""The exception tree.

    LlameaGpuError
    ├── SpaceError
    │   ├── SpaceFormatError      a file that is truncated, malformed or of an unknown format
    │   └── UnknownSpaceError     a --space name that nothing answers to
    ├── RecordingError            a live kernel that cannot be loaded or recorded
    ├── TaskError                 a recording, clock or trace that cannot be scored
    ├── BenchError                a bench, or a bench's folder, that breaks a rule
    ├── SearcherError             a searcher spec that names nothing or does not load
    │   └── SearcherDiedError     a library's searcher took its worker process down
    ├── ClusterError              a cluster that cannot be reached, or a node that may not be used
    ├── SandboxError
    │   └── SandboxUnavailableError   no isolation level could be verified
    ├── LLMError
    │   ├── TransportError        the route failed after its retries
    │   ├── AnswerUnusableError   a refusal, or an answer without text
    │   ├── BudgetExceededError   the ledger's cap would be passed
    │   └── UnseenPromptError     a replay was asked what the recording does not hold
    ├── AnswerError               a model's answer that fails parsing or admission
    ├── ArchiveError              a run folder that is missing, foreign or of another schema
    └── SettingsError             evolution settings that contradict the rules

    BudgetExhausted (BaseException)   the end of a tuning run, not a fault
    Stalled (BaseException)           the end of a searcher that asks for nothing new

A candidate's faults are data (a trace with an outcome); these are the host's and the user's.
Messages give the rule, what was got, and how to mend it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHORTEST_PART = 3


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about a ``name`` that is none of ``known``: what may be meant.

    Names that look alike, then those that ``name`` is a part of; where there are none,
    ``otherwise``, or all that there are.
    """
    known = tuple(known)
    folded = {each.casefold(): each for each in known}
    folded_name = name.casefold()
    close = difflib.get_close_matches(folded_name, folded, n=3)
    parts = [each for each in folded if len(folded_name) >= _SHORTEST_PART and folded_name in each]
    matches = [folded[each] for each in dict.fromkeys((*close, *parts))][:3]
    if matches:
        return f"did you mean {' or '.join(matches)}?"
    return otherwise or (f"there are {', '.join(known)}" if known else "there are none")


class LlameaGpuError(Exception):
    """Base of every error this package raises on purpose."""


class SpaceError(LlameaGpuError):
    """A search space or recording that breaks a rule."""


class SpaceFormatError(SpaceError):
    """A file that cannot be imported: names the file, the position, the problem and the remedy."""

    def __init__(self, path: object, position: str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {position}: {problem}. {remedy}")
        self.path = path
        self.position = position
        self.problem = problem
        self.remedy = remedy


class UnknownSpaceError(SpaceError):
    """A space name or path that resolves to nothing."""


class RecordingError(LlameaGpuError):
    """A live kernel that cannot be loaded or recorded, or a journal that belongs to another one."""


class TaskError(LlameaGpuError):
    """A recording, clock or trace from which no task or score can be made."""


class BenchError(LlameaGpuError):
    """A bench that cannot be run or read: other settings, an unfinished or malformed folder."""


class SearcherError(LlameaGpuError):
    """A searcher spec that names nothing, or a searcher that does not load."""


class SearcherDiedError(SearcherError):
    """A library's searcher took its worker process down, or another run beside it did."""


class ClusterError(LlameaGpuError):
    """A cluster that cannot be reached, or nodes that may not be used for a run."""


class SandboxError(LlameaGpuError):
    """The sandbox itself failed (never: the candidate in it)."""


class SandboxUnavailableError(SandboxError):
    """No isolation level could be verified on this machine."""


class LLMError(LlameaGpuError):
    """An LLM route failed."""


class TransportError(LLMError):
    """The route failed and its retries are used up, or retrying is pointless."""


class AnswerUnusableError(LLMError):
    """The server answered, but with a refusal or without text."""


class BudgetExceededError(LLMError):
    """A request that would pass the ledger's cap, requests in flight included."""


class UnseenPromptError(LLMError):
    """A replay was asked for a prompt that its recording does not hold."""


class AnswerError(LlameaGpuError):
    """A model's answer that is refused before evaluation.

    ``kind`` is a stable identifier for statistics; the message is one sentence for the model.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ArchiveError(LlameaGpuError):
    """A run folder that is missing, foreign, or of another schema version."""


class SettingsError(LlameaGpuError):
    """Settings that contradict each other or a rule."""


class BudgetExhausted(BaseException):
    """The tuning budget is used up. A BaseException, so that ``except Exception`` lets it pass."""


class Stalled(BaseException):
    """The optimizer kept asking for what it had seen, and has ended; the budget has not."""
