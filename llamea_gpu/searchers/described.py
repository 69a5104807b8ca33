"""A space that trusted searchers are given: another one, with what is known of its kernel.

Here and not beside `SeededSpace`, because programs in the sandbox get that one: it knows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.contract import Configuration, KernelFacts, Space
from llamea_gpu.spaces.seeded import SeededSpace


class DescribedSpace(SeededSpace):
    """``space`` with `KernelFacts`; its samples begin with ``measured``, best first."""

    def __init__(
        self, space: Space, facts: KernelFacts, measured: Sequence[Configuration] = ()
    ) -> None:
        super().__init__(space, measured)
        self.facts = facts
