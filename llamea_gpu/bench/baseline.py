"""Results that ship, so that a new searcher is compared without running the others again.

They are an ordinary bench's folder (`llamea_gpu.bench.results`), made by
``scripts/make_baselines.py``; any other bench's folder serves as well.
"""

from __future__ import annotations

from pathlib import Path

from llamea_gpu.bench.results import BenchResults
from llamea_gpu.resources import resource_dir

SHIPPED = "h200"


def load_baseline(folder: Path | None = None) -> BenchResults:
    """The bench in ``folder``, or the one that ships.

    Raises:
        BenchError: it is missing, unfinished or malformed.
    """
    return BenchResults.load(folder or resource_dir("tuning_spaces") / "baselines" / SHIPPED)
