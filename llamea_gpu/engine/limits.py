"""After how long a process is killed, and how the limit of compiling adapts to what has worked."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

_ENOUGH = 16  # compilations that worked, before they say what is usual
_USUAL_SHARE = 0.9
_TIMES_USUAL = 3.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a process is killed.

    Attributes:
        compile_s: of one compilation.
        least_compile_s: None to hold on to ``compile_s``. Else the limit falls to three times what
            nine tenths of the compilations that worked took, and never below this: a search gains
            nothing from the few that take much longer, and they keep its processes busy.
        timing_s: of checking and timing one configuration.
        start_s: until a process is ready.
    """

    compile_s: float = 30.0
    timing_s: float = 30.0
    start_s: float = 600.0
    least_compile_s: float | None = None


class CompileLimit:
    """The limit of the next compilation."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._worked: list[float] = []  # sorted seconds

    def worked(self, seconds: float) -> None:
        """Take in a compilation that worked."""
        insort(self._worked, seconds)

    @property
    def seconds(self) -> float:
        """After which a compilation that begins now is ended."""
        most, least = self._limits.compile_s, self._limits.least_compile_s
        if least is None or len(self._worked) < _ENOUGH:
            return most
        usual = self._worked[int(_USUAL_SHARE * (len(self._worked) - 1))]
        return min(most, max(least, _TIMES_USUAL * usual))
