"""What keeps luck out of selection: fresh seeds, races, constants tuned before a program competes;
and the same start for every strategy."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support.candidates import candidate
from support.programs import answer, climber_program, random_program

from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED
from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.plan import plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings, decided, recorded_settings, validated
from llamea_gpu.evolution.trials import _is_better
from llamea_gpu.scoring import SpaceScore, score_space
from llamea_gpu.tasks import run_seed

CLIMBERS = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(8)}
FRAIL = '''\
class Frail:
    """Draws, but raises in some runs."""

    def __init__(self, size=4):
        self.size = size

    def __call__(self, evaluate, space, rng):
        if rng.random() in {unlucky}:
            raise RuntimeError("unlucky")
        while True:
            evaluate(space.sample(self.size))
'''
LAZY = '''\
class Lazy:
    """Gives up at once unless its constant is at least {least}."""

    def __init__(self, size=8, name="lazy"):  # as answered
        self.size = size
        self.name = name

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
        while self.size >= {least}:
            evaluate(space.sample(self.size))
'''


def with_(settings: EvolutionSettings, **changes: object) -> EvolutionSettings:
    return settings.model_copy(update=changes)


async def test_each_generation_has_its_own_seeds_and_the_elite_runs_on_them_too(
    harness, settings, scripted
) -> None:
    settings = with_(settings, fresh_seeds=True, repeats=3)
    outcome, archive = await harness.run(settings, scripted(CLIMBERS))
    with closing(archive):
        population = Population.read(archive)
        assert [c.p for c in population.scored()] == [c.p for c in outcome.population.scored()]
        seeds = {}
        for c in population.candidates:
            traces = archive.traces(c.slot, max(c.attempts - 1, 0), "small0")
            own = max(c.slot, 0) // settings.offspring
            wanted = {3 * own, 3 * own + 1, 3 * own + 2}
            for generation in c.rescored:
                wanted |= {3 * generation, 3 * generation + 1}  # half of three, rounded up
            assert set(traces) == wanted
            seeds[c.slot] = {traces[number].seed for number in traces if number // 3 == own}
        assert seeds[-1] == seeds[0] == seeds[1]
        assert seeds[2] == seeds[3]
        assert not seeds[0] & seeds[2]
        again = [c for c in population.candidates if c.rescored]
        # When the second generation began, and after the last.
        assert {generation for c in again for generation in c.rescored} == {1, 2}
        task = next(t for t in harness._problems[settings.spaces].tasks if t.name == "small0")
        for c in again:
            runs = list(archive.traces(c.slot, max(c.attempts - 1, 0), "small0").values())
            assert len(runs) > settings.repeats
            assert c.space_p()["small0"] == pytest.approx(score_space(task, runs, 10).p)
            assert c.p != Population.as_settled(archive).find(c.slot).p


async def test_a_leader_that_fails_on_fresh_seeds_breeds_no_more(
    harness, settings, scripted
) -> None:
    settings = with_(settings, fresh_seeds=True, candidates=2, parents=4)
    second = range(settings.repeats, 2 * settings.repeats)
    unlucky = [
        np.random.default_rng(run_seed(settings.seed, space, number)).random()
        for space in settings.spaces
        for number in second
    ]
    answers = {(0, 0): CLIMBERS[0, 0], (1, 0): answer(FRAIL.format(unlucky=unlucky))}
    outcome, archive = await harness.run(settings, scripted(answers))
    with closing(archive):
        assert Population.as_settled(archive).find(1).status == SCORED
        frail = outcome.population.find(1)
        assert (frail.status, frail.kind, frail.p) == (FAILED, "error", None)
        assert "unlucky" in frail.message
        assert Population.read(archive).find(1) == frail


async def test_a_race_stops_what_cannot_reach_the_elite_after_few_runs(
    harness, settings, scripted
) -> None:
    settings = with_(settings, race_repeats=1, repeats=5, candidates=3)
    answers = {**CLIMBERS, (2, 0): answer(LAZY.format(least=9))}
    outcome, archive = await harness.run(settings, scripted(answers))
    with closing(archive):
        lazy = outcome.population.find(2)
        assert lazy.status == PARTIAL
        runs = {space: len(archive.traces(2, 0, space)) for space in settings.spaces}
        assert len(set(runs.values())) == 1  # on every space as many
        assert 1 <= runs["small0"] < settings.repeats
        assert f"stopped after {runs['small0']} runs on each space" in lazy.message
        best = outcome.population.best()
        attempt = max(best.attempts - 1, 0)
        assert set(archive.traces(best.slot, attempt, "small0")) == set(range(5))


def score(space: str, p: float, runs: int) -> SpaceScore:
    """Of runs that agree by chance."""
    return SpaceScore(space, p, 0.0, np.zeros(1), runs, 10.0, 0.0, 0.5, 0.1, 0.0, 0.0)


@pytest.mark.parametrize(("p", "stopped"), [(0.45, False), (0.2, True)])
def test_two_runs_that_agree_prove_little(settings, p: float, stopped: bool) -> None:
    class Task:
        def __init__(self, name: str) -> None:
            self.name = name

    settings = with_(settings, race_repeats=2, repeats=8, parents=1)
    cascade = Cascade([Task("s0"), Task("s1")], None, None, settings)
    population = Population((candidate(0, 0.5, 0.5, error=0.05),))
    scores = {name: score(name, p, runs=2) for name in ("s0", "s1")}
    # With two runs of eight the error is twice .05, and two of them are .2.
    assert bool(cascade._out_of_reach(scores, population)) == stopped


async def test_constants_are_tuned_before_a_program_competes(harness, settings, scripted) -> None:
    settings = with_(settings, tuned_variants=6, candidates=3, repeats=8)
    settings = with_(settings, strategy="sequential", offspring=1)
    text = LAZY.format(least=12)
    answers = {
        (0, 0): answer(text),
        (1, 0): answer(text),  # the same again
        (1, 1): answer(random_program(3)),
        (2, 0): answer(climber_program(3)),
    }
    client = scripted(answers)
    outcome, archive = await harness.run(settings, client)
    with closing(archive):
        tuned = outcome.population.find(0)
        size = tuned.program.settings["size"]
        assert size >= 12
        assert tuned.program.source == text.replace("size=8", f"size={size}")
        assert tuned.answered.source == text
        assert text in archive.call(0, 0).answer.text
        assert f"size={size}" in client.asked[1].messages[-1].content  # what breeds
        assert outcome.population.find(1).attempts == 2  # the answer is known under both texts
        assert set(archive.traces(0, 0, "small0")) == set(range(8))
        trials = archive.traces(0, 0, "small0", trials=True)
        # A heat of seven settings with one run each, then two settings with two.
        assert len(trials) == 7 + 2 * 2
        assert max(trials) < 0
        counted = {trace.seed for trace in archive.traces(0, 0, "small0").values()}
        assert not counted & {trace.seed for trace in trials.values()}
        again, _ = await harness.run(settings, scripted({}), archive)
        assert again.population == outcome.population


def test_a_tuned_constant_must_be_better_by_more_than_an_error() -> None:
    assert _is_better([0.5, 0.6, 0.7], [0.3, 0.4, 0.5])
    assert not _is_better([0.5, 0.1, 0.7], [0.3, 0.4, 0.5])
    assert not _is_better([0.3, 0.4], [0.3, 0.4])
    assert not _is_better([0.9, -np.inf], [0.3, 0.4])
    assert _is_better([0.1, 0.1], [0.3, -np.inf])


def brought(settings: EvolutionSettings, folder: Path, count: int = 3) -> EvolutionSettings:
    files = [folder / f"brought{number}.py" for number in range(count)]
    for number, file in enumerate(files):
        file.write_text(climber_program(number + 3))
    return with_(settings, inspirations=tuple(map(str, files)))


async def test_every_strategy_begins_with_the_same_question(
    harness, settings, scripted, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    settings = brought(settings, tmp_path / "files")
    settings = with_(settings, candidates=1, offspring=1, inspirations_shown=2, repeats=2)
    first = []
    for strategy in ("evolution", "independent", "sequential"):
        client = scripted(CLIMBERS)
        outcome, archive = await harness.run(with_(settings, strategy=strategy), client)
        archive.close()
        # But for what depends on the host.
        texts = [message.content for message in client.asked[0].messages]
        first.append([re.sub(r"≈[\d.]+", "≈", text) for text in texts])
        (written,) = outcome.population.written().candidates
        best = [c.slot for c in outcome.population.scored() if c.inspiration]
        assert (written.operator, written.parents) == ("new", tuple(best[:2]))
    assert first[0] == first[1] == first[2]
    assert first[0][1].count("class Climber") == 2
    assert "better than the programs above" in first[0][1]


def test_later_questions_are_each_strategys_own() -> None:
    first = (candidate(-1, 0.3, operator="a"), candidate(-2, 0.6, operator="b", inspiration=True))
    answered = Population((*first, candidate(0, 0.4), candidate(1, 0.5)))
    common = {"model": "m", "offspring": 2, "inspirations": ("b",)}
    new = {
        strategy: plan_slot(
            2, answered, decided(validated({**common, "strategy": strategy}), whole=False)
        )
        for strategy in ("evolution", "independent", "sequential")
    }
    assert new["independent"].operator == "new"
    assert [c.slot for c in new["independent"].parents] == [-2]
    assert new["sequential"].operator == "sequential"
    assert new["evolution"].operator not in ("new", "sequential")


def test_a_new_run_decides_and_a_recorded_one_goes_on_as_before() -> None:
    names = ("fresh_seeds", "race_repeats", "tuned_variants", "inspirations_shown")

    def found(settings: EvolutionSettings) -> tuple[object, ...]:
        return tuple(getattr(settings, name) for name in names)

    old = recorded_settings('{"model": "m", "inspirations": ["a"]}')
    assert not any(found(old))
    assert found(decided(old, whole=True)) == (True, 2, 3, 2)
    assert found(decided(old, whole=False)) == (False, 0, 0, 2)
    independent = validated({"model": "m", "strategy": "independent"})
    assert found(decided(independent, whole=True)) == (False, 0, 0, 0)
    chosen = validated({"model": "m", "fresh_seeds": False, "tuned_variants": 1})
    assert found(decided(chosen, whole=True)) == (False, 2, 1, 0)
