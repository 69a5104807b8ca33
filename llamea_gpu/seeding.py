"""Makes all randomness of a process depend on a run's seed.

A searcher under the contract draws from the generator that it is given. Candidates and libraries
that reach for a global generator, or for one without a seed, are thereby reproducible too.
"""

from __future__ import annotations

import random

import numpy as np


def seed_process(seed: int) -> np.random.Generator:
    """Seed every global source of randomness; returns the run's own generator."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for code that uses the global generator
    _seed_the_unseeded(seed)
    return np.random.default_rng(seed)


def _seed_the_unseeded(seed: int) -> None:
    """Let ``default_rng()`` and all that numpy and scipy build on it depend on the run's seed.

    numpy takes the entropy of a generator without a seed from this name, in every version from
    1.26 to 2.4; one that does not have it is left as it is.
    """
    names = vars(np.random.bit_generator)
    if "randbits" in names:
        names["randbits"] = random.Random(seed).getrandbits  # noqa: S311 - no secret
