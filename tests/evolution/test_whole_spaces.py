"""An evolution on modelled whole spaces: the score, the prompts, and a run that is continued."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.command_line import llamea
from support.programs import answer, climber_program
from support.whole import toy_task

from llamea_gpu.area import Yardstick
from llamea_gpu.errors import TaskError, UnknownSpaceError
from llamea_gpu.evolution.behaviour import describe
from llamea_gpu.evolution.candidate import PARTIAL, SCORED
from llamea_gpu.evolution.mechanisms import mechanisms
from llamea_gpu.evolution.parents import breeding_pool
from llamea_gpu.evolution.session import Problem, build_problem, start
from llamea_gpu.modelled import load_tasks
from llamea_gpu.programs import make
from llamea_gpu.prompting import SpaceFacts
from llamea_gpu.report.run import read_run
from llamea_gpu.report.run_page import run_page
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve_program
from llamea_gpu.spaces.features import compute_whole_features

GOOD = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(4)}
CLOUD = "clouds/helion/rope-4x32x4096x128-h200"


@pytest.fixture
def problem(settings) -> Problem:
    yardstick = Yardstick("helion:X", "parallel(2)", 30.0, 12, 0.5, 1.2, np.full(1000, 0.4), 0.01)
    task = toy_task(yardstick=yardstick)
    facts = SpaceFacts(
        features=compute_whole_features(task.cloud),
        clock=task.clock.name,
        budget_evaluations=task.budget_evaluations,
        parallel=task.clock.parallel,
        budget_s=task.budget_s,
    )
    seeds = build_problem(settings).seeds
    return Problem((task,), (facts,), seeds)


async def test_programs_are_bred_and_a_stopped_run_goes_on(
    harness, settings, scripted, problem
) -> None:
    harness._problems[settings.spaces] = problem
    client = scripted(GOOD)
    outcome, archive = await harness.run(settings, client)
    written = [c for c in outcome.population.candidates if c.slot >= 0]
    assert {c.status for c in written} <= {SCORED, PARTIAL}
    best = outcome.population.best()
    assert best is not None
    assert best.p is not None
    assert best.p < 1
    pool = breeding_pool(outcome.population, settings)
    assert best in pool.elite
    assert best in pool.front
    system, user = (message.content for message in client.asked[0].messages)
    assert "evaluate.submit(space.sample(evaluate.parallel))" in system
    assert "The budget is 30 seconds" in system
    assert "LFBOTreeSearch" in system
    assert "cannot be listed" in system
    assert "P(t)" not in system
    assert "configurations given" in user
    # What is in the archive is enough to go on: the traces hold their configurations.
    stored = archive.traces(written[0].slot, 0, "toy-64")
    assert stored[0].configurations is not None
    assert describe(problem.tasks[0], list(stored.values())) is not None
    again, _ = await harness.run(settings, scripted({}), archive)
    assert [c.p for c in again.population.candidates] == [
        c.p for c in outcome.population.candidates
    ]


async def test_a_runs_pages_say_that_its_score_is_modelled(
    harness, settings, scripted, problem
) -> None:
    harness._problems[settings.spaces] = problem
    settings = settings.model_copy(update={"candidates": 2})
    outcome, archive = await harness.run(settings, scripted(GOOD))
    folder = archive.path.parent
    archive.close()
    shown = " ".join(llamea("runs", "show", folder).stdout.split())
    assert "modelled score ± s.e." in shown
    assert "modelled, not measured" in shown
    assert "Modelled time relative to the best known" in shown
    assert "P ± s.e." not in shown
    best = outcome.population.best()
    assert best is not None
    one = llamea("runs", "show", folder, "--candidate", best.slot).stdout
    assert f"modelled score {best.p:.3f}" in one
    # By hand: the toy's best takes 0.5 ms, its default 1.2, and 15 and 30 s are within the budget.
    traces = read_run(folder, {}).traces[best.slot]["toy-64"]
    at_end = np.exp(np.mean([np.log(min(1.2, trace.cost_ms.min()) / 0.5) for trace in traces]))
    (row,) = [line for line in one.splitlines() if "toy-64" in line and "±" not in line]
    assert row.split("│")[-2].strip() == f"{at_end:.3f}"
    assert json.loads(llamea("runs", "show", folder, "--json").stdout)["measure"] == (
        "modelled score"
    )
    # Under a short name: a long path leaves little room for what stands beside it.
    assert "modelled score" in llamea("runs", "list", ".", cwd=folder.parent).stdout
    page = run_page(read_run(folder, {}), "toy")
    text = repr(page)
    assert "best modelled score" in text
    assert page.details is not None
    assert page.details["measure"] == "modelled score"
    assert "'P ± s.e.'" not in text
    assert "text='P'" not in text
    assert page.scale.startswith("Modelled score: 0 is Helion's")


def test_what_would_have_been_better_is_not_said() -> None:
    task = toy_task()
    found = resolve_program("random_search")
    trace = run_optimizer(lambda: make(found.program), task, 1, cpu_s=None)
    assert mechanisms({task: [trace]}) == ()


def test_another_model_is_another_problem(problem, settings, tmp_path) -> None:
    other = toy_task(budget_s=20.0)
    assert Problem((other,), problem.facts, problem.seeds).fingerprint != problem.fingerprint
    start(tmp_path / "run", settings, problem).close()


def test_a_model_without_a_passed_gate_is_refused_unless_asked_for() -> None:
    with pytest.raises(TaskError, match="must have passed its gate"):
        load_tasks([CLOUD], unfit=False)


def test_measured_and_modelled_spaces_do_not_mix() -> None:
    with pytest.raises(TaskError, match="mean different things"):
        load_tasks(["matmul-2048", CLOUD])
    with pytest.raises(UnknownSpaceError):
        load_tasks(["clouds/helion/rop-4x32x4096x128-h200"])
