"""Live searches are short here, and so is what they draw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def smaller_draws() -> Iterator[None]:
    """Most of a short search would be to draw a thousand of Helion's configurations."""
    from llamea_gpu.frameworks.helion import space

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "HELION_MOST_SAMPLED", 200)
        patch.setattr(space, "HELION_MOST_POOLED", 200)
        yield
