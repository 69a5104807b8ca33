"""Behaviour tells kinds of search apart, on real recordings, and does not depend on the seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.driver import run_in_process
from support.recordings import small_recording

from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.evolution.behaviour import (
    LARGEST_BATCH,
    STYLE_NAMES,
    Behaviour,
    describe,
    distances,
    novelty,
)
from llamea_gpu.evolution.parents import SAME_BEHAVIOUR
from llamea_gpu.programs.classical.genetic_algorithm import GeneticAlgorithm
from llamea_gpu.programs.classical.iterated_local_search import IteratedLocalSearch
from llamea_gpu.programs.classical.random_search import RandomSearch
from llamea_gpu.spaces.catalogue import load_spaces
from llamea_gpu.tasks import Evaluator, Task, Trace, build_tasks, run_seed

REPEATS = 10
KINDS = (RandomSearch, IteratedLocalSearch, GeneticAlgorithm)
SEEDS = (1, 2)


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    names = ("matmul-2048", "softmax-4096x4096", "attention-2x32x1024x64")
    return build_tasks(load_spaces(names, ()))


@pytest.fixture(scope="module")
def kinds(tasks: tuple[Task, ...]) -> list[list[Behaviour]]:
    """Each kind of search with each seed, in order."""
    return [behaviours(kind, tasks, seed) for kind in KINDS for seed in SEEDS]


def behaviours(
    kind: Callable[[], object], tasks: tuple[Task, ...], seed: int, repeats: int = REPEATS
) -> list[Behaviour]:
    found = []
    for task in tasks:
        seeds = [run_seed(seed, task.name, repeat) for repeat in range(repeats)]
        behaviour = describe(task, [run_in_process(kind(), task, s) for s in seeds])
        assert behaviour is not None
        found.append(behaviour)
    return found


def test_two_seeds_of_one_search_are_nearer_than_any_two_kinds(kinds) -> None:
    distance = distances(kinds)
    for one in range(len(kinds)):
        for other in range(len(kinds)):
            if one // 2 != other // 2:
                same = distance[one, one ^ 1]
                assert distance[one, other] > 1.5 * same, (one, other)


@pytest.mark.parametrize("space", range(3))
def test_each_space_alone_tells_random_from_local_search(kinds, space: int) -> None:
    distance = distances([[found[space]] for found in kinds[:4]])
    assert distance[:2, 2:].min() > 1.5 * max(distance[0, 1], distance[2, 3])


def test_the_kinds_differ_in_what_their_names_say(kinds) -> None:
    def feature(kind: int, name: str) -> float:
        number = STYLE_NAMES.index(name)
        return float(np.mean([b.style[number] for found in kinds[kind : kind + 2] for b in found]))

    random, local, genetic = (
        {name: feature(kind, name) for name in STYLE_NAMES} for kind in (0, 2, 4)
    )
    assert random["from_best_late"] > genetic["from_best_late"]
    assert random["step_midway"] > local["step_midway"]
    assert random["evenness"] > max(local["evenness"], genetic["evenness"])


def test_same_behaviour_is_as_near_as_seeds_of_one_program(kinds) -> None:
    distance = distances(kinds)
    between_seeds = np.mean([distance[one, one ^ 1] for one in range(len(kinds))])
    assert 0.5 * SAME_BEHAVIOUR < between_seeds < 2 * SAME_BEHAVIOUR


def test_a_distance_is_one(kinds) -> None:
    distance = distances(kinds)
    assert (distance == distance.T).all()
    assert (np.diag(distance) == 0).all()
    assert ((distance >= 0) & (distance <= 1)).all()
    twice = distances([*kinds, kinds[3]])
    assert twice[3, -1] == 0


def test_candidates_without_a_common_space_are_far_apart(kinds) -> None:
    distance = distances([kinds[0][:1], kinds[0][1:], []])
    assert (distance[np.triu_indices(3, 1)] == 1).all()


def test_novelty_is_the_distance_to_the_nearest_before(kinds) -> None:
    by_slot = {-1: kinds[0], 0: kinds[2], 1: [], 2: kinds[3], 3: kinds[2]}
    found = novelty(by_slot)
    assert list(found) == [-1, 0, 2, 3]
    assert found[-1] == 1
    assert 0 < found[2] < found[0]
    assert found[3] == 0


def test_the_sizes_of_batches_are_a_feature() -> None:
    task = Task.build(small_recording(workers=4))
    evaluator = Evaluator(task)
    try:
        for start, size in ((0, 1), (1, 6), (7, 2), (3, 8)):  # the last has four revisits
            evaluator.ask(np.arange(start, start + size))
    except BudgetExhausted:
        pytest.fail("the budget must hold eleven evaluations")
    trace = evaluator.trace(outcome="finished", seed=1)
    found = describe(task, [trace])
    assert found is not None
    sizes = [1, 6, 6, 6, 6, 6, 6, 2, 2, 2, 2][: len(trace.rows)]
    logs = np.log2(sizes) / np.log2(LARGEST_BATCH)
    expected = [part.mean() for part in np.array_split(logs, 3)]
    index = STYLE_NAMES.index("batch_early")
    assert found.style[index : index + 3] == pytest.approx(expected, abs=1e-4)


def test_the_sequential_clock_knows_no_batches() -> None:
    task = Task.build(small_recording(workers=1))
    found = describe(task, [run_in_process(RandomSearch(), task, 1)])
    assert found is not None
    index = STYLE_NAMES.index("batch_early")
    assert found.style[index : index + 3] == (0, 0, 0)


def test_a_run_of_one_visit_shows_nothing() -> None:
    task = Task.build(small_recording())
    one = Trace(np.array([3], np.int32), np.array([1.0]), np.array([2.0]), "finished", 1, 0, 1)
    assert describe(task, [one]) is None


def test_failures_alone_are_a_behaviour_too() -> None:
    recording = small_recording()
    task = Task.build(recording)
    rows = np.flatnonzero(~np.isfinite(recording.time_ms))[:5].astype(np.int32)
    trace = Trace(rows, np.arange(5.0), np.full(5, np.inf), "budget", 10, 5, 1)
    found = describe(task, [trace])
    assert found is not None
    style = dict(zip(STYLE_NAMES, found.style, strict=True))
    assert (style["failures"], style["revisits"], style["from_best_late"]) == (1, 0.5, 1)


@pytest.mark.parametrize(
    "damage",
    [{"style": (0.5,)}, {"places": (1.0,)}, {"cardinalities": (2, -1)}, {"cardinalities": ()}],
)
def test_a_foreign_descriptor_is_refused(damage: dict[str, object]) -> None:
    fields = {"space": "s", "style": (0.5,) * len(STYLE_NAMES), "places": (1.0, 0.0)}
    fields["cardinalities"] = (2,)
    Behaviour(**fields)
    with pytest.raises(ValueError, match="behaviour"):
        Behaviour(**{**fields, **damage})
