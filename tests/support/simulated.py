"""Benches of simulated searchers, whose difference is known, without processes or sandbox."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llamea_gpu.bench.plan import BenchSettings, Plan, RunKey, SearcherInfo, describe_space
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.tasks import Evaluator, Task, Trace, build_tasks
from support.recordings import small_recording


def small_tasks(count: int) -> tuple[Task, ...]:
    return build_tasks([small_recording(f"small-{seed}", seed=seed) for seed in range(count)])


def simulated_bench(
    skills: Mapping[str, float], tasks: tuple[Task, ...], repeats: int, seed: int = 0
) -> tuple[Plan, dict[str, Task], dict[RunKey, Trace]]:
    """Searchers by skill: 0 is random search, more visits good configurations earlier."""
    plan = Plan(
        BenchSettings(),
        repeats,
        tuple(SearcherInfo(name, "source", "0" * 64) for name in skills),
        tuple(describe_space(task) for task in tasks),
    )
    by_name = {task.name: task for task in tasks}
    rng = np.random.default_rng(seed)
    runs = {
        key: simulated_run(by_name[key.space], skills[key.searcher], rng, plan.seed_of(key))
        for key in plan.runs()
    }
    return plan, by_name, runs


def simulated_run(task: Task, skill: float, rng: np.random.Generator, seed: int) -> Trace:
    rank = np.argsort(np.argsort(task.recording.time_ms)) / len(task.recording.time_ms)
    evaluator = Evaluator(task)
    outcome = "finished"
    try:
        for row in np.argsort(rng.random(rank.size) + skill * rank):
            evaluator.ask(np.array([row]))
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=seed, cpu_s=0.25)
