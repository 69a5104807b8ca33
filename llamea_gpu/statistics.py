"""Resampling, the same on every machine and with every version of NumPy.

What it does: bootstrap resamples of runs, and the standard error of what is computed from them.

What it does not do: decide what a difference means; a caller states its own rule.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def bootstrap_counts(items: int, resamples: int) -> NDArray[np.int64]:
    """How often each of ``items`` appears in each resample with replacement, (resamples, items).

    The draws come from SHAKE-256 rather than a NumPy generator, whose streams may change between
    versions; taking 64-bit draws modulo ``items`` is biased by less than items / 2**64.
    """
    digest = hashlib.shake_256(b"llamea_gpu bootstrap %d" % items).digest(8 * items * resamples)
    draws = np.frombuffer(digest, dtype="<u8").reshape(resamples, items) % np.uint64(items)
    offsets = np.arange(resamples, dtype=np.int64)[:, None] * items
    flat = (draws.astype(np.int64) + offsets).ravel()
    return np.bincount(flat, minlength=resamples * items).reshape(resamples, items)


def bootstrap_standard_error(replicates: NDArray[np.float64]) -> float:
    """Standard deviation (n - 1) of a statistic over its bootstrap replicates, (resamples,)."""
    return float(np.std(replicates, ddof=1))
