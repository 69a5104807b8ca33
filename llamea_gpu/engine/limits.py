"""After how long a process is killed, and how these limits adapt to what has worked."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

_ENOUGH = 16  # configurations that worked, before they say what is usual
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
        least_timing_s: the same for ``timing_s``: a launch cannot be ended, and nothing else is
            timed meanwhile.
        start_s: until a process is ready.
    """

    compile_s: float = 30.0
    timing_s: float = 30.0
    start_s: float = 600.0
    least_compile_s: float | None = None
    least_timing_s: float | None = None


class AdaptiveLimit:
    """The limit of one stage: ``most`` seconds, falling to no less than ``least`` where it may."""

    def __init__(self, most: float, least: float | None) -> None:
        self._most, self._least = most, least
        self._worked: list[float] = []  # sorted seconds

    def worked(self, seconds: float) -> None:
        """Take in a configuration that worked."""
        insort(self._worked, seconds)

    @property
    def seconds(self) -> float:
        """After which a configuration is ended."""
        if self._least is None or len(self._worked) < _ENOUGH:
            return self._most
        usual = self._worked[int(_USUAL_SHARE * (len(self._worked) - 1))]
        return min(self._most, max(self._least, _TIMES_USUAL * usual))
