"""Resampling and tests, the same on every machine and with every version of NumPy.

What it does: bootstrap resamples of runs, intervals and p-values from them, rank tests over spaces,
effect sizes, and the correction for many comparisons.

What it does not do: decide what a difference means; a caller states its own rule.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def bootstrap_counts(items: int, resamples: int, stream: str = "") -> NDArray[np.int64]:
    """How often each of ``items`` appears in each resample with replacement, (resamples, items).

    Every ``stream`` has its own draws. They come from SHAKE-256 rather than a NumPy generator,
    whose streams may change between versions; taking 64-bit draws modulo ``items`` is biased by
    less than items / 2**64.
    """
    text = f"llamea_gpu bootstrap {items}" + (f" {stream}" if stream else "")
    digest = hashlib.shake_256(text.encode()).digest(8 * items * resamples)
    draws = np.frombuffer(digest, dtype="<u8").reshape(resamples, items) % np.uint64(items)
    offsets = np.arange(resamples, dtype=np.int64)[:, None] * items
    flat = (draws.astype(np.int64) + offsets).ravel()
    return np.bincount(flat, minlength=resamples * items).reshape(resamples, items)


def bootstrap_standard_error(replicates: NDArray[np.float64]) -> float:
    """Standard deviation (n - 1) of a statistic over its bootstrap replicates, (resamples,)."""
    return float(np.std(replicates, ddof=1))


def mean_of_independent(variances: ArrayLike, degrees: float) -> tuple[FloatArray, FloatArray]:
    """Standard error of a mean of S independent estimates, and its degrees of freedom.

    ``variances`` (S, ...) are those of the estimates, each with ``degrees`` of freedom; those of
    the mean are Satterthwaite's (1946), at least ``degrees``. Both results have the shape (...).
    """
    terms = np.asarray(variances, dtype=np.float64)
    total = terms.sum(axis=0)
    squares = (terms**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        effective = np.where(squares > 0, degrees * total**2 / squares, degrees)
    return np.sqrt(total) / len(terms), effective


def student_half_width(error: ArrayLike, degrees: ArrayLike, level: float = 0.95) -> FloatArray:
    """Half the width of the interval of ``level`` around an estimate with this standard error."""
    from scipy.stats import t

    width: FloatArray = np.asarray(error) * t.ppf(0.5 + level / 2, np.asarray(degrees))
    return width


def student_p_value(difference: float, error: float, degrees: float) -> float:
    """Two-sided p of no difference. Without any spread every difference but 0 is certain."""
    from scipy.stats import t

    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * t.sf(abs(difference) / error, degrees))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's (1979) step-down rule, in the given order."""
    count = len(p_values)
    corrected = [0.0] * count
    highest = 0.0
    for place, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (count - place) * p_values[index]))
        corrected[index] = highest
    return corrected


def wilcoxon_p_value(differences: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; differences of 0 are dropped, 1 if all are.

    Exact up to 50 differences of distinct size; what is done beyond is scipy's choice.
    """
    from scipy.stats import wilcoxon

    deltas = np.asarray(differences, dtype=np.float64)
    deltas = deltas[deltas != 0]
    if not deltas.size:
        return 1.0
    return float(wilcoxon(deltas).pvalue)


def smallest_wilcoxon_p(pairs: int) -> float:
    """The least p that `wilcoxon_p_value` can give for ``pairs`` differences: all of one sign."""
    return min(1.0, 2.0 ** (1 - pairs))


def vargha_delaney(first: ArrayLike, second: ArrayLike) -> float:
    """How often a value of ``first`` exceeds one of ``second``, ties counting half: A (2000).

    .5 is no difference; .56, .64 and .71 are called small, medium and large. Cliff's delta is
    2 A - 1.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    above = a[:, None] > b[None, :]
    equal = a[:, None] == b[None, :]
    return float(np.mean(above + 0.5 * equal))


def mean_ranks(scores: ArrayLike) -> FloatArray:
    """Mean rank of each column of ``scores`` (blocks, treatments), 1 for the highest, (k,)."""
    from scipy.stats import rankdata

    ranks: FloatArray = rankdata(-np.asarray(scores, dtype=np.float64), axis=1).mean(axis=0)
    return ranks


def friedman_p_value(scores: ArrayLike) -> float:
    """P of Friedman's test that all columns of ``scores`` (blocks, at least 3 treatments) agree."""
    from scipy.stats import friedmanchisquare

    blocks = np.asarray(scores, dtype=np.float64)
    if (blocks == blocks[:, :1]).all():
        return 1.0
    return float(friedmanchisquare(*blocks.T).pvalue)


def nemenyi_critical_difference(treatments: int, blocks: int, level: float = 0.05) -> float:
    """Mean ranks further apart than this differ: q sqrt(k (k + 1) / (6 N)) (Demšar 2006)."""
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - level, treatments, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(treatments * (treatments + 1) / (6 * blocks)))
