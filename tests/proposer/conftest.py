"""One space for what models write about it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from llamea_gpu.spaces.space import SearchSpace, SpaceView

NAMES = (
    *("block", "warps", "stages", "mode", "buffer", "scale"),
    *("indexing[0]", "indexing[1]", "version"),
)
VALUES = (
    (16, 32, 64, 128, 256),
    (1, 2, 4, 8),
    (1, 2, 3),
    ("flat", "persistent"),
    (None, False, True),
    (0.5, 1.0),
    ("pointer", "descriptor"),
    ("pointer", "descriptor"),
    (1,),
)


def invented_space() -> SearchSpace:
    """As the head of ``answers.toml`` says."""
    grid = np.array(list(itertools.product(*(range(len(values)) for values in VALUES))))
    return SearchSpace(NAMES, VALUES, grid[~((grid[:, 0] == 4) & (grid[:, 1] < 2))])


@pytest.fixture
def space() -> SpaceView:
    return SpaceView(invented_space(), np.random.default_rng(0))


@pytest.fixture
def anchor() -> tuple[int, ...]:
    return (2, 2, 1, 0, 0, 1, 0, 0, 0)
