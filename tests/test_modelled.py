"""Tasks on whole spaces as a command loads them: their budgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import llamea
from support.modelled import formula_cloud

from llamea_gpu.bench.plan import BenchSettings, describe_searcher, describe_space
from llamea_gpu.bench.plan import Plan as BenchPlan
from llamea_gpu.errors import BenchError, TaskError
from llamea_gpu.evolution.session import build_problem
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.modelled import BUDGET_S, load_tasks
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.formats import export_cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("clouds") / "formula.cloud.parquet"
    export_cloud(formula_cloud(100), file)
    return str(file)


def test_a_budget_is_the_tasks_and_their_axis_ends_with_it(cloud: str) -> None:
    (usual,), (short,) = load_tasks([cloud]), load_tasks([cloud], budget_s=12.5)
    assert (usual.budget_s, short.budget_s) == (BUDGET_S, 12.5)
    assert short.axis_s[-1] == 12.5
    assert short.budget_evaluations == pytest.approx(usual.budget_evaluations * 12.5 / BUDGET_S)
    assert short.fingerprint == usual.fingerprint  # of the measurements


def test_a_budget_that_means_nothing_is_refused(cloud: str) -> None:
    with pytest.raises(TaskError, match=r"recording's follows.* got 20 s for matmul-2048"):
        load_tasks(["matmul-2048"], budget_s=20.0)
    for budget_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(TaskError, match="must be positive seconds"):
            load_tasks([cloud], budget_s=budget_s)


def test_benches_of_two_budgets_do_not_mix(cloud: str) -> None:
    def plan(budget_s: float | None, said: float | None) -> BenchPlan:
        (task,) = load_tasks([cloud], budget_s=budget_s)
        settings = BenchSettings(budget_s=said)
        searcher = describe_searcher(resolve("random_search"))
        return BenchPlan(settings, 2, (searcher,), (describe_space(task),))

    with pytest.raises(BenchError, match=r"no --budget-s and the command says --budget-s 20\.0"):
        plan(None, None).joined(plan(20.0, 20.0))
    with pytest.raises(BenchError, match="is not what it was when this bench was run"):
        plan(None, None).joined(plan(20.0, None))


def test_an_evolution_goes_on_with_its_budget_alone(cloud: str) -> None:
    settings = EvolutionSettings(model="m", spaces=(cloud,), unfit=True, budget_s=20.0)
    other = settings.model_copy(update={"budget_s": 30.0})
    problem = build_problem(settings)
    assert [task.budget_s for task in problem.tasks] == [20.0]
    assert [facts.budget_s for facts in problem.facts] == [20.0]
    assert problem.fingerprint != build_problem(other).fingerprint


@pytest.mark.parametrize("command", ["run", "score", "bench", "evolve"])
def test_every_command_hands_its_budget_on(command: str, tmp_path: Path) -> None:
    traces = tmp_path / "traces.csv"
    traces.write_text("run,elapsed_s,cost\n1,1.0,2.0\n")
    arguments = {
        "run": ("random_search", "--space", "matmul-2048"),
        "score": (traces, "--space", "matmul-2048"),
        "bench": ("random_search", "--spaces", "matmul-2048"),
        "evolve": ("-o", tmp_path / "run", "--space", "matmul-2048", "--model", "m"),
    }[command]
    said = llamea(command, *arguments, "--budget-s", "20", status=2).stderr
    assert "got 20 s for matmul-2048: leave --budget-s out" in " ".join(said.split())
