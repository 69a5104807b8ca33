"""What a cloud measures next, and searchers that take part in it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.whole_spaces import ToySpace, toy_cost

from llamea_gpu.errors import BudgetExhausted, SearcherError
from llamea_gpu.recording.mixture import SEARCHERS_SHARE, SHARES, Mixture
from llamea_gpu.recording.trajectory import Trajectories, Trajectory

CLASSICAL = ("steady_state_genetic_algorithm", "differential_evolution")


def mixture(specs: tuple[str, ...] = (), seed: int = 0, evaluations: int = 60) -> Mixture:
    rng = np.random.default_rng(seed)
    drawing, *own = rng.spawn(1 + len(specs))
    searchers = [
        Trajectories(s, ToySpace, r, evaluations, 8) for s, r in zip(specs, own, strict=True)
    ]
    space = ToySpace(rng)
    return Mixture(space, lambda: space.draw(drawing), searchers, rng)


def run(mixed: Mixture, count: int, ahead: int = 8) -> list[tuple[tuple[int, ...], str]]:
    """Measure with ``ahead`` configurations on their way; what was measured, and how."""
    flying, done = [], []
    while len(done) < count:
        while len(flying) < ahead and (found := mixed.propose()) is not None:
            flying.append(found)
        if not flying:
            break
        config, how = flying.pop(0)
        mixed.learn(config, toy_cost(config), how)
        done.append((config, how))
    mixed.stop()
    return done


def test_every_way_has_its_share_and_nothing_new_comes_twice() -> None:
    done = run(mixture(CLASSICAL), 400)
    counts = Counter(how for _, how in done)
    assert [how for _, how in done[:2]] == ["start", "start"]
    for how, share in SHARES.items():
        assert counts[how] == pytest.approx(400 * share, abs=8), how
    for spec in CLASSICAL:
        assert counts[spec] == pytest.approx(400 * SEARCHERS_SHARE / 2, abs=16), spec
    new = [config for config, how in done if how != "again"]
    assert len(set(new)) == len(new)
    space = ToySpace(np.random.default_rng())
    assert all(space.canonical(config) == config for config in new)
    assert {config for config, how in done if how == "again"} <= set(new)


def test_it_comes_near_the_best_and_learns_what_fails() -> None:
    done = run(mixture(CLASSICAL), 400)
    best = min(toy_cost(config) for config, _ in done)
    drawn = np.random.default_rng(1).integers(5, size=(400, 6))
    assert best < min(toy_cost(tuple(config)) for config in drawn)
    failing = Counter(how for config, how in done if toy_cost(config) == np.inf)
    assert failing["random"] >= 1
    assert "again" not in failing


def test_the_same_seed_proposes_the_same() -> None:
    assert run(mixture(CLASSICAL), 150) == run(mixture(CLASSICAL), 150)
    assert run(mixture(CLASSICAL), 150) != run(mixture(CLASSICAL, seed=1), 150)


def test_what_was_measured_before_is_known() -> None:
    first = run(mixture(CLASSICAL), 100)
    again = mixture(CLASSICAL)
    for config, how in first:
        again.learn(config, toy_cost(config), how)
    more = [config for config, how in run(again, 100) if how != "again"]
    assert not set(more) & {config for config, _ in first}
    assert Counter(how for _, how in first)["start"] == 2


def test_it_ends_when_nothing_new_is_to_be_found() -> None:
    only = ToySpace(np.random.default_rng(), [(1, 1, 1, 1, 1, 1)])
    only.sample = lambda n: []  # type: ignore[method-assign]
    only.neighbors = lambda config, kind="hamming": []  # type: ignore[method-assign]
    mixed = Mixture(only, lambda: None, [], np.random.default_rng())
    assert mixed.propose() == ((1, 1, 1, 1, 1, 1), "start")
    assert mixed.propose() is None
    mixed.learn((1, 1, 1, 1, 1, 1), 1.0, "start")
    assert mixed.propose() is None


# -- trajectories -------------------------------------------------------------------------------


def trajectory(optimizer: Any, evaluations: int = 20) -> Trajectory:
    rng = np.random.default_rng(0)
    return Trajectory("mine", optimizer, ToySpace(rng), rng, evaluations, 4)


def drive(run: Trajectory, most: int = 1000) -> list[tuple[int, ...]]:
    """Answer whatever it asks."""
    asked = []
    while len(asked) < most and (config := run.ask()) is not None:
        asked.append(config)
        run.tell(config, toy_cost(config))
    return asked


def test_a_batch_is_asked_whole_and_answered_in_its_order() -> None:
    seen: list[Any] = []
    batch = [(1, 1, 1, 1, 1, 1), (0, 3, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1)]

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        seen.append(evaluate(batch))

    run = trajectory(optimizer)
    starts = [run.ask(), run.ask()]
    assert starts == run.space.starts
    assert run.ask() is None  # it waits
    for config in reversed(starts):
        run.tell(config, toy_cost(config))
    wanted = [run.ask(), run.ask()]
    assert wanted == [(1, 1, 1, 1, 1, 1), (0, 0, 1, 1, 1, 1)]  # equal ones once, normalised
    assert run.ask() is None
    for config in wanted[::-1]:
        run.tell(config, toy_cost(config))
        run.ask()
    assert run.ended
    assert seen == [[toy_cost(batch[0]), toy_cost((0, 0, 1, 1, 1, 1)), toy_cost(batch[0])]]


def test_submitted_ones_come_as_they_are_done() -> None:
    seen: list[Any] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate.submit([(1, 1, 1, 1, 1, 1), (0, 3, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2)])
        assert evaluate.pending == 3
        while done := evaluate.wait():
            seen.append(done)

    run = trajectory(optimizer)
    drive(run, 2)  # the starts
    first, second = run.ask(), run.ask()
    assert second == (0, 0, 1, 1, 1, 1)
    run.tell(second, 7.0)  # type: ignore[arg-type]
    run.ask()
    run.tell(first, 9.0)  # type: ignore[arg-type]
    run.ask()
    assert run.ended
    known = ((2, 2, 2, 2, 2, 2), toy_cost((2, 2, 2, 2, 2, 2)))
    assert seen == [[known], [((0, 3, 1, 1, 1, 1), 7.0)], [((1, 1, 1, 1, 1, 1), 9.0)]]


def test_the_budget_ends_it_and_what_others_measured_is_free() -> None:
    spent: list[float] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        while True:
            evaluate(space.sample(3))
            spent.append(evaluate.spent)

    run = trajectory(optimizer, evaluations=20)
    for config in ToySpace(np.random.default_rng(5)).sample(50):
        run.tell(config, toy_cost(config))
    asked = drive(run)
    assert run.ended
    assert not run.trouble
    assert len(asked) == len(set(asked)) <= 20
    assert spent == sorted(spent)
    assert spent[-1] <= 1.0


def test_its_space_knows_its_own_best() -> None:
    leaders: list[Any] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate([(3, 1, 4, 1, 0, 3)])
        leaders.append(list(space.leaders))

    drive(trajectory(optimizer))
    assert leaders[0][0] == (3, 1, 4, 1, 0, 3)
    assert len(leaders[0]) == 3


def test_faults_end_it_and_are_told() -> None:
    def raises(evaluate: Any, space: Any, rng: Any) -> None:
        raise ZeroDivisionError("mine")

    def invalid(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate([(9, 9, 9, 9, 9, 9)])

    def idle(evaluate: Any, space: Any, rng: Any) -> None:
        while True:
            evaluate([(2, 2, 2, 2, 2, 2)])

    for optimizer, trouble in ((raises, "ZeroDivisionError: mine"), (invalid, "repair()")):
        run = trajectory(optimizer)
        drive(run)
        assert run.ended
        assert trouble in run.trouble
    stalled = trajectory(idle)
    drive(stalled)
    assert stalled.ended


def test_one_that_thinks_for_ever_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamea_gpu.recording.trajectory._PATIENCE_S", 0.2)
    forever, left = threading.Event(), []

    def thinks(evaluate: Any, space: Any, rng: Any) -> None:
        forever.wait()
        try:
            evaluate([(1, 1, 1, 1, 1, 1)])
        except BudgetExhausted:
            left.append(True)
            raise

    run = trajectory(thinks)
    drive(run)
    assert run.ended
    assert "thought for more than" in run.trouble
    forever.set()
    run._thread.join(10)
    assert left == [True]


def test_no_thread_stays_behind() -> None:
    before = threading.active_count()
    mixed = mixture(CLASSICAL, evaluations=30)
    run(mixed, 300)
    assert threading.active_count() == before
    assert not mixed.troubles()


def test_a_searcher_that_brings_nothing_is_given_up() -> None:
    runs = Trajectories("random_search", ToySpace, np.random.default_rng(0), 20, 4)
    every = {c: 1.0 for c in np.ndindex(*[5] * 6) if ToySpace.canonical(None, c) == c}  # type: ignore[arg-type]
    assert [runs.ask(every) for _ in range(3)] == [None] * 3
    runs.stop()


def test_searchers_that_cannot_take_part_are_refused() -> None:
    for spec in ("no_such_searcher", "random_search?x=1"):
        with pytest.raises(SearcherError):
            mixture((spec,))
