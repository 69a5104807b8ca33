"""Several shapes of a Helion kernel, tuned one after another in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("helion")

from llamea_gpu.engine import early
from llamea_gpu.errors import SearcherError
from llamea_gpu.frameworks.helion.kernel_script import find_script
from llamea_gpu.live import TuneSettings
from llamea_gpu.live.helion import tuning


def test_the_copy_is_made_before_the_script_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading Helion's decorators may initialise CUDA: no copy of this process could use it then,
    and timing would wait for imports, longer than many a search lasts."""
    monkeypatch.setattr(early, "_early", [])
    copies = []

    def offered(script: Path) -> tuple[str, ...]:
        copies.append(early.early_template())
        return ("small",)

    monkeypatch.setattr(tuning, "shapes_of", offered)
    try:
        with pytest.raises(SearcherError, match="at least two"):
            tuning.tune_helion_shapes(
                find_script("matmul"), "random_search", TuneSettings(seconds=1), "all"
            )
        assert [copy is not None for copy in copies] == [True]
    finally:
        early._end()
