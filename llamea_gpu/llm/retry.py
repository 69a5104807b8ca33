"""How often, and after which delays, a request is tried again.

Not here: which failures deserve it; the route knows that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llamea_gpu.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with an upper bound.

    Attributes:
        max_retries: attempts after the first one.
        first_delay_s: seconds before the first retry; doubled for each further one.
        max_delay_s: the longest wait, also when a server's Retry-After asks for more.
    """

    max_retries: int = 4
    first_delay_s: float = 1.0
    max_delay_s: float = 60.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or not 0 <= self.first_delay_s <= self.max_delay_s:
            raise SettingsError(
                "max_retries >= 0 and 0 <= first_delay_s <= max_delay_s must hold, but got "
                f"(max_retries={self.max_retries}, first_delay_s={self.first_delay_s}, "
                f"max_delay_s={self.max_delay_s})"
            )

    def delay_s(
        self, retry: int, retry_after_s: float | None, rng: np.random.Generator | None
    ) -> float:
        """Seconds to wait before retry number ``retry`` (from 1).

        A server's ``retry_after_s`` is obeyed up to the bound. Otherwise the exponential delay,
        with ``rng`` shortened by up to half, so that requests which failed together do not
        return together.
        """
        if retry_after_s is not None:
            return min(max(retry_after_s, 0.0), self.max_delay_s)
        # The exponent is bounded because 2.0**1024 overflows.
        delay = min(self.first_delay_s * 2.0 ** min(retry - 1, 60), self.max_delay_s)
        return delay if rng is None else delay * float(rng.uniform(0.5, 1.0))
