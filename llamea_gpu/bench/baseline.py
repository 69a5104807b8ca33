"""Results kept in the repository: a new searcher is compared without running the others again.

They are an ordinary bench's folder (`llamea_gpu.bench.results`), made by
``scripts/make_baselines.py``; any other bench's folder serves as well.
"""

from __future__ import annotations

from pathlib import Path

from llamea_gpu.bench.results import BenchResults
from llamea_gpu.errors import BenchError
from llamea_gpu.resources import resource_dir

SHIPPED = "h200"


def load_baseline(folder: Path | None = None) -> BenchResults:
    """The bench in ``folder``, or the repository's.

    Raises:
        BenchError: it is missing, unfinished or malformed.
    """
    shipped = shipped_baseline()
    if folder is None and not shipped.is_dir():
        raise BenchError(
            f"the results to compare with must be in {shipped}, but a wheel leaves them out: give "
            f"a bench's folder with --baseline-from (one of your own, or the repository's "
            f"tuning_spaces/baselines/{SHIPPED})"
        )
    return BenchResults.load(folder or shipped)


def shipped_baseline() -> Path:
    """The repository's results; a wheel has no such folder."""
    return resource_dir("tuning_spaces") / "baselines" / SHIPPED
