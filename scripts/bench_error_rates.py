"""How often the bench's intervals hold the truth, and its verdicts are wrong: measured.

    python scripts/bench_error_rates.py [--benches 200] [--space NAME ...]

Random search is run 1,500 times on each space (default: the validation split); P of all of them is
the truth. Then benches of few repeats are drawn from these runs:

- coverage: how many 95 % intervals of P hold the truth, for the rule of `llamea_gpu.bench.analysis`
  (Student's t times the bootstrap's standard error) and for the percentiles of the same bootstrap;
- false verdicts: how many benches of two, and of four, equal searchers say that one beats another;
- detected: how many find a searcher that visits better configurations earlier (`SKILL`).

Nothing is started but numpy and scipy; results depend on the arguments alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llamea_gpu.bench.analysis import analyse
from llamea_gpu.bench.plan import BenchSettings, Plan, RunKey, SearcherInfo, describe_space
from llamea_gpu.bench.samples import Samples
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.scoring import score_space
from llamea_gpu.spaces.catalogue import load_spaces
from llamea_gpu.tasks import Evaluator, Task, Trace, build_tasks

RESAMPLES = 200
REPEATS = (5, 10, 25)
POPULATION = 1500
SKILL = 0.02  # a configuration in the better half comes about 0.01 of the space earlier


def simulated(task: Task, skill: float, rng: np.random.Generator) -> Trace:
    """Visits in batches, at random; with skill, good configurations tend to come earlier."""
    rank = np.argsort(np.argsort(task.recording.time_ms)) / task.recording.space.size
    order = np.argsort(rng.random(rank.size) + skill * rank)
    evaluator = Evaluator(task)
    outcome = "finished"
    try:
        for first in range(0, order.size, task.clock.workers):
            evaluator.ask(order[first : first + task.clock.workers])
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=0)


class Population:
    """Many runs of one searcher, to draw benches from."""

    def __init__(self, tasks: Sequence[Task], skill: float, rng: np.random.Generator) -> None:
        self.runs = {t.name: [simulated(t, skill, rng) for _ in range(POPULATION)] for t in tasks}
        self.p = float(np.mean([score_space(t, self.runs[t.name], bootstrap=0).p for t in tasks]))

    def drawn(self, space: str, repeats: int, rng: np.random.Generator) -> list[Trace]:
        return [self.runs[space][i] for i in rng.choice(POPULATION, repeats, replace=False)]


def drawn_bench(
    plan: Plan, populations: dict[str, Population], rng: np.random.Generator
) -> dict[RunKey, Trace]:
    return {
        RunKey(searcher, space.name, repeat): trace
        for searcher, population in populations.items()
        for space in plan.spaces
        for repeat, trace in enumerate(population.drawn(space.name, plan.repeats, rng))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benches", type=int, default=200)
    parser.add_argument("--space", nargs="+", default=["validation"])
    arguments = parser.parse_args()
    tasks = build_tasks(load_spaces(arguments.space))
    by_name = {task.name: task for task in tasks}
    rng = np.random.default_rng(1)
    chance, better = Population(tasks, 0.0, rng), Population(tasks, SKILL, rng)
    print(f"{len(tasks)} spaces; P of chance {chance.p:.3f}, of the better one {better.p:.3f}")
    print("| repeats | coverage | of percentiles | false, of 2 | false, of 4 | detected |")
    print("|---|---|---|---|---|---|")
    for repeats in REPEATS:
        rates = [
            one_bench(repeats, tasks, by_name, chance, better, rng)
            for _ in range(arguments.benches)
        ]
        shares = np.mean(rates, axis=0)
        print(f"| {repeats} | " + " | ".join(f"{share:.1%}" for share in shares) + " |", flush=True)


def one_bench(
    repeats: int,
    tasks: Sequence[Task],
    by_name: dict[str, Task],
    chance: Population,
    better: Population,
    rng: np.random.Generator,
) -> tuple[bool, ...]:
    """(truth in the interval, in the percentiles, false of two, false of four, detected)."""
    populations = {"a": chance, "b": chance, "c": chance, "d": chance, "better": better}
    plan = Plan(
        BenchSettings(),
        repeats,
        tuple(SearcherInfo(name, "source", "") for name in populations),
        tuple(describe_space(task) for task in tasks),
    )
    runs = drawn_bench(plan, populations, rng)

    def verdicts(names: str) -> set[tuple[str, str]]:
        chosen = tuple(s for s in plan.searchers if s.name in names.split())
        found = analyse(replace(plan, searchers=chosen), by_name, runs, RESAMPLES)
        return {(c.first, c.second) for c in found.comparisons if c.decided}

    alone = replace(plan, searchers=plan.searchers[:1])
    interval = analyse(alone, by_name, runs, RESAMPLES).standings[0].interval
    assert interval is not None
    replicates = Samples.of(alone, by_name, runs, RESAMPLES).replicates("a")
    assert replicates is not None
    low, high = np.quantile(replicates.mean(axis=0), (0.025, 0.975))
    return (
        interval.low <= chance.p <= interval.high,
        bool(low <= chance.p <= high),
        bool(verdicts("a b")),
        bool(verdicts("a b c d")),
        ("better", "a") in verdicts("a better"),
    )


if __name__ == "__main__":
    main()
