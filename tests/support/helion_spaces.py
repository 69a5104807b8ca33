"""HelionSpace over real configuration spaces and over invented ones."""

from __future__ import annotations

from typing import Any

import helion
import numpy as np
import torch
from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec

from llamea_gpu.frameworks.helion.space import HelionSpace


def seeds_of(bound: Any) -> list[list[Any]]:
    generation = bound.config_spec.create_config_generation()
    return [flat for flat, _ in generation.seed_flat_config_pairs()]


def space_of(bound: Any, seed: int = 0, **given: Any) -> HelionSpace:
    generation = bound.config_spec.create_config_generation(overrides=given.pop("overrides", None))
    rng = np.random.default_rng(seed)
    return HelionSpace(generation, rng, given.pop("seeds", ()), given.pop("accepts", None))


def config_of(space: HelionSpace, indices: tuple[int, ...]) -> helion.Config:
    return space._config_gen.unflatten(space.flat(indices))


def user_space(tunables: dict[str, Any], seed: int = 0, seeds: Any = ()) -> HelionSpace:
    spec = create_user_config_spec(tunables)
    adapter = _ExternalKernelAdapter(spec, lambda _: None, (), device=torch.device("cpu"))
    generation = adapter.config_spec.create_config_generation()
    return HelionSpace(generation, np.random.default_rng(seed), seeds)
