"""Models of a formula's cloud, fitted once, and a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.modelled import formula_cloud

from llamea_gpu.models import recipe
from llamea_gpu.models.model import SpaceModel


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLAMEA_GPU_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def few_trees(cache: None) -> Iterator[None]:
    """A tenth of the trees, for tests that fit again and again."""
    few = {part: max(8, trees // 10) for part, trees in recipe._TREES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "_TREES", few)
        yield


@pytest.fixture(scope="session")
def model(cache: None) -> SpaceModel:
    return SpaceModel(formula_cloud(runs=2))
