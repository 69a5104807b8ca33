"""What a trusted searcher may ask beyond the contract: who offers it, and who must not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from support.recordings import small_recording

from llamea_gpu.contract import (
    BeginsWith,
    DescribesKernel,
    ExplainsFailures,
    KernelFacts,
    SimulatesTime,
    facts_of,
    failure_of,
    measured_in,
    trouble_of,
)
from llamea_gpu.runner.local import LocalEvaluate, RecordedSpace
from llamea_gpu.sandbox import child
from llamea_gpu.searchers.hybrid import MeasuredEvaluate
from llamea_gpu.searchers.library import DescribedSpace
from llamea_gpu.spaces.seeded import SeededSpace
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Evaluator, Task

RECORDING = small_recording()


def generator() -> np.random.Generator:
    return np.random.default_rng(1)


def evaluate_of_a_run() -> LocalEvaluate:
    return LocalEvaluate(RECORDING.space, Evaluator(Task.build(RECORDING)))


class Plain:
    """An ``evaluate`` that keeps to the contract."""

    spent, parallel, pending = 0.0, 1, 0

    def __call__(self, configs: Any) -> list[float]:
        return [1.0] * len(configs)


def test_a_recordings_space_describes_its_kernel() -> None:
    space = RecordedSpace(RECORDING, generator())
    assert isinstance(space, DescribesKernel)
    assert not isinstance(space, BeginsWith)
    assert facts_of(space).info is not None
    assert measured_in(space) == ()


def test_what_is_known_of_a_kernel_passes_on_to_the_searcher_that_goes_on() -> None:
    space = RecordedSpace(RECORDING, generator())
    measured = space.sample(3)
    begun = DescribedSpace(space, facts_of(space), measured)
    assert isinstance(begun, DescribesKernel)
    assert facts_of(begun) == space.facts
    assert list(measured_in(begun)) == measured
    assert begun.sample(3) == measured


def test_a_program_in_the_sandbox_finds_what_was_measured_and_nothing_else() -> None:
    view = SpaceView(RECORDING.space, generator())
    begun = SeededSpace(view, view.sample(3))
    for space in (view, begun, copy.deepcopy(begun)):
        assert not isinstance(space, DescribesKernel)
        assert facts_of(space) == KernelFacts()
    assert isinstance(begun, BeginsWith)
    evaluate = child.Evaluate(RECORDING.space, 1, 8, 0.0)
    assert not isinstance(evaluate, ExplainsFailures | SimulatesTime)


def test_the_first_one_of_a_hybrid_finds_failures_and_time_as_alone() -> None:
    evaluate = evaluate_of_a_run()
    noted = MeasuredEvaluate(evaluate)
    failing = RECORDING.space.configuration(int(np.flatnonzero(~RECORDING.ok)[0]))
    assert failure_of(noted, failing) is None  # nobody has measured it yet
    noted([failing])
    assert failure_of(noted, failing) == failure_of(evaluate, failing) is not None
    assert isinstance(noted, SimulatesTime)
    noted.wait_until(noted.now_s + 5.0)
    assert noted.now_s == evaluate.now_s >= 5.0


def test_over_an_evaluate_that_knows_neither_it_makes_nothing_up() -> None:
    plain: Any = Plain()
    noted = MeasuredEvaluate(plain)
    assert noted([(0, 0)]) == [1.0]
    assert failure_of(plain, (0, 0)) is None
    assert failure_of(noted, (0, 0)) is None
    noted.wait_until(5.0)
    assert noted.now_s == 0.0


@pytest.mark.parametrize(
    ("trouble", "said"), [("the model was rude", "the model was rude"), (None, ""), (3, "")]
)
def test_trouble_is_a_text_or_nothing(trouble: object, said: str) -> None:
    """A generated optimizer may count its troubles under that name."""
    optimizer = Plain()
    assert trouble_of(optimizer) == ""
    optimizer.trouble = trouble  # type: ignore[attr-defined]
    assert trouble_of(optimizer) == said
