"""What the versions of the models' recipe differ in: two rules for seconds, and nothing else.

A cloud names the version that its model is made by (`Cloud.recipe`), so that a run that was
recorded on a cloud replays on the answers that it had. A version is never changed: what is to
answer otherwise is a new one, which new clouds name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """One version.

    Attributes:
        booked_seconds: whether a row that took over the timing of equal code, for which the engine
            books 0 s, counts among the code's seconds to time, as if timing had been free. Where it
            does not, code that was measured takes 0 s from the second meeting of a run on, under
            the engine's clock.
        log_seconds: whether the trees for seconds predict the mean of logarithms, below the mean
            of seconds by 6 to 29 % in sum where compilations differ much, and not the mean.
    """

    booked_seconds: bool
    log_seconds: bool


VERSIONS = {
    2: Version(booked_seconds=True, log_seconds=True),
    3: Version(booked_seconds=False, log_seconds=False),
}
