"""What the prompt claims of recorded spaces is so, on the training spaces that ship."""

from __future__ import annotations

import numpy as np
import pytest

from llamea_gpu.prompting import PromptContext, render
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    """Helion's among the training spaces."""
    found = [load_space(entry.name) for entry in list_spaces() if entry.split == "train"]
    return [recording for recording in found if recording.info.parallel_workers > 1]


def test_there_are_six_of_them(recordings: list[Recording]) -> None:
    assert len(recordings) == 6  # four when the prompt's sentence was written


def test_what_compiles_slowest_is_hardly_ever_good(recordings: list[Recording]) -> None:
    for recording in recordings:
        slow = recording.compile_s >= np.quantile(recording.compile_s, 0.9)
        fastest = np.argsort(recording.time_ms)[: recording.space.size // 100]
        assert not slow[fastest].any()


def test_budgets_of_batches_are_as_long_as_the_contract_says(recordings: list[Recording]) -> None:
    assert "parallel(16): usually 200 to 300 evaluations" in render("new", PromptContext())[0]
    budgets = sorted(Task.build(recording).budget_evaluations for recording in recordings)
    assert budgets[0] > 200
    assert budgets[-2] < 320  # "usually": attention at 4x16x4096x128 has 477


def test_main_effects_explain_over_half_of_the_compile_times(recordings: list[Recording]) -> None:
    shares = []
    for recording in recordings:
        space, y = recording.space, np.log(recording.compile_s)
        codes = [np.eye(c)[space.configurations[:, j]] for j, c in enumerate(space.cardinalities)]
        x = np.concatenate(codes, axis=1)
        rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
        shares.append(1 - np.var(rest) / np.var(y))
    assert min(shares) > 0.5
    assert max(shares) < 0.85
