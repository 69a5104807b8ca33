"""The order of searchers on modelled whole spaces, and how it compares with live runs.

    scripts/whole_space_order.py -o FOLDER [--clouds NAME ...] [--arms ENGINE=SPEC ...]
                                 [--repeats N] [--seconds S] [--workers W] [--unseen]
    scripts/whole_space_order.py -o FOLDER --summary [--live FOLDER_OF_BENCH_LIVE]

An arm is ENGINE=SPEC as of scripts/bench_live.py: ``pipelined`` is the engine's clock,
``framework`` Helion's own. Every run goes to FOLDER/runs.jsonl as it ends, in the form that
bench_live.py writes; what is there is not run again. Times are modelled, not measured. Needs
Helion, but no GPU. With --unseen each arm runs on a model of the cloud without the points that its
searcher has asked for, in whichever run: so a cloud that holds live runs is compared with them.

The summary gives, for each cloud and arm at each mark, the mean over runs of the best so far
relative to the best known time, with a bootstrap interval of 95 %, and mean ranks over clouds.
With --live, the rank correlation of the arms' means with those of live runs, kernel by kernel.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.clocks import make_clock
from llamea_gpu.modelled import WholeTask
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.runner import Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import list_clouds, load_cloud, search_path_from_environment
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.tasks import Trace, run_seed

NAIVE = str(Path(__file__).parent / "naive_genetic_algorithm.py")
ARMS = [
    "pipelined=steady_state_genetic_algorithm",
    f"pipelined={NAIVE}",
    "pipelined=iterated_local_search",
    "pipelined=growing_foresight",
    "pipelined=conditioned_local_search",
    "pipelined=main_effect_posterior",
    "pipelined=helion:LFBOTreeSearch",
    "framework=helion:LFBOTreeSearch",
    "framework=helion:PatternSearch",
    "pipelined=random_search",
]
YARDSTICK = "framework=helion:LFBOTreeSearch"
MARKS_S = (5.0, 15.0, 30.0, 45.0)
CLOCKS = {"pipelined": "pipelined", "framework": "parallel"}
COLUMNS = (
    *("configurations", "statuses", "times_ms", "low_ms", "high_ms", "compile_s", "benchmark_s"),
    *("control_ms", "source", "how", "run", "at_s"),
)
RESAMPLES = 2000
PLACES = 3  # decimals of what is kept


def main() -> None:
    """Run what is missing, then print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--clouds", nargs="*")
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--live", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.summary:
        run_missing(options)
    text = summary(lines_of(options.output / "runs.jsonl"))
    if options.live:
        text += against_live(
            lines_of(options.output / "runs.jsonl"), lines_of(options.live / "runs.jsonl")
        )
    print(text)


def run_missing(options: argparse.Namespace) -> None:
    """Every repeat of every arm on every cloud that the folder does not hold."""
    path = options.output / "runs.jsonl"
    done = {(r["cloud"], r["arm"], r["seed"], r["digest"]) for r in lines_of(path)}
    folders = search_path_from_environment()
    names = options.clouds or [entry.name for entry in list_clouds(folders)]
    known: dict[str, Cloud] = {name: load_cloud(name, folders) for name in names}
    tasks = {
        (name, arm): task_of(known[name], arm, options.seconds, options.unseen)
        for name in names
        for arm in options.arms
    }
    best = {name: known[name].best_ms for name in names}
    if not options.unseen:
        best = {name: tasks[name, options.arms[0]].optimum_ms for name in names}
    wanted = [
        (name, arm, seed)
        for seed in range(1, options.repeats + 1)
        for name in names
        for arm in options.arms
        if (name, label(arm), seed, digest(tasks[name, arm])) not in done
    ]
    with Runner.open(options.workers) as runner, path.open("a", encoding="utf-8") as file:
        flying: dict[Future[Trace], tuple[str, str, int]] = {}
        while wanted or flying:
            while wanted and len(flying) < 2 * options.workers:
                name, arm, seed = wanted.pop(0)
                task = tasks[name, arm]
                paired = run_seed(0, task.name, seed)
                searcher = resolve(arm.partition("=")[2])
                run = runner.submit(searcher, task, paired, limits=Limits(cpu_s=120.0))
                flying[run] = (name, arm, seed)
            for run in wait(flying, return_when=FIRST_COMPLETED).done:
                name, arm, seed = flying.pop(run)
                line = described(tasks[name, arm], name, label(arm), seed, run.result())
                line |= {"best_known_ms": best[name], "unseen": options.unseen}
                file.write(json.dumps(line) + "\n")
                file.flush()


def task_of(cloud: Cloud, arm: str, seconds: float, unseen: bool) -> WholeTask:
    """An arm's task; ``unseen``: on a model that knows none of its searcher's points."""
    engine = arm.partition("=")[0]
    clock = make_clock(f"{CLOCKS[engine]}({cloud.info.parallel_workers})")
    if unseen:
        cloud = without(cloud, label(arm).partition("=")[2])
    return WholeTask(cloud, SpaceModel(cloud), clock, seconds)


def without(cloud: Cloud, searcher: str) -> Cloud:
    """The cloud without what a searcher asked for; the starts stay, which everybody is given."""
    kept = np.array([Path(how).stem != searcher for how in cloud.how.tolist()])
    return replace(cloud, **{name: getattr(cloud, name)[kept] for name in COLUMNS})


def label(arm: str) -> str:
    """The arm without folders."""
    engine, _, spec = arm.partition("=")
    return f"{engine}={Path(spec).stem if spec.endswith('.py') else spec}"


def digest(task: WholeTask) -> str:
    """What the costs are a function of."""
    return f"{task.model.digest[:16]}-{task.cloud.recipe}"


def described(task: WholeTask, name: str, arm: str, seed: int, trace: Trace) -> dict[str, Any]:
    """One line of runs.jsonl: bench_live's, and what is known of the model."""
    pairs = zip(trace.elapsed_s.tolist(), trace.cost_ms.tolist(), strict=True)
    return {
        "modelled": True,
        "cloud": name,
        "digest": digest(task),
        "kernel": task.info.kernel,
        "arm": arm,
        "seed": seed,
        "seconds": task.budget_s,
        "clock": task.clock.name,
        "outcome": trace.outcome,
        "error": trace.error,
        "cpu_s": round(trace.cpu_s or 0.0, PLACES),
        "best_known_ms": task.optimum_ms,
        "default_ms": task.default_ms,
        "measured": [
            [round(elapsed_s, PLACES), cost_ms if math.isfinite(cost_ms) else None]
            for elapsed_s, cost_ms in pairs
        ],
    }


def best_at(run: Mapping[str, Any], seconds: float) -> float:
    """Best so far, at least the default's: that is there without tuning."""
    default_ms = run.get("default_ms") or math.inf
    found = [t for s, t in run["measured"] if t is not None and s <= seconds]
    return float(min([default_ms, *found]))


def area(run: Mapping[str, Any], seconds: float) -> float:
    """Mean of log(best so far / best known) until then."""
    times = np.linspace(0.0, seconds, 451)[1:]
    best = [best_at(run, s) for s in times]
    return float(np.mean(np.log(np.array(best) / run["best_known_ms"])))


Runs = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]  # by kernel or cloud, and arm


def grouped(runs: Iterable[Mapping[str, Any]], by: str) -> Runs:
    """By kernel or cloud, and arm."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        found[Path(run[by]).name, label(run["arm"])].append(run)
    return found


def summary(runs: Sequence[Mapping[str, Any]]) -> str:
    """Tables in Markdown, one a cloud and one over clouds."""
    by_pair = grouped(runs, "cloud")
    clouds = sorted({cloud for cloud, _ in by_pair})
    arms = list(dict.fromkeys(arm for _, arm in by_pair))
    lines = [f"modelled; {len(runs)} runs; best so far / best known, mean [95 %] over runs"]
    ranks: dict[str, dict[float, list[float]]] = {arm: defaultdict(list) for arm in arms}
    overall: dict[str, dict[float, list[float]]] = {arm: defaultdict(list) for arm in arms}
    for cloud in clouds:
        lines += ["", f"{cloud}:", "", header()]
        present = [arm for arm in arms if (cloud, arm) in by_pair]
        means = {}
        for arm in present:
            found = by_pair[cloud, arm]
            cells = []
            for mark in MARKS_S:
                ratios = np.array([best_at(r, mark) / r["best_known_ms"] for r in found])
                means[arm, mark] = float(ratios.mean())
                overall[arm][mark].append(float(ratios.mean()))
                cells.append(interval(ratios))
            number = np.mean([r.get("configurations", len(r["measured"])) for r in found])
            areas = interval(np.array([area(r, MARKS_S[-1]) for r in found]))
            lines.append(f"| {arm} | {len(found)} | {' | '.join(cells)} | {areas} | {number:.0f} |")
        for mark in MARKS_S:
            order = sorted(present, key=lambda arm: means[arm, mark])
            for place, arm in enumerate(order, start=1):
                ranks[arm][mark].append(place)
    title = "mean over clouds of best so far / best known (mean rank):"
    lines += ["", title, "", overall_header()]
    points = {arm: score(by_pair, clouds, arm) for arm in arms}
    for arm in sorted(arms, key=lambda arm: -points[arm]):
        cells = [
            f"{np.mean(overall[arm][mark]):.3f} ({np.mean(ranks[arm][mark]):.1f})"
            for mark in MARKS_S
        ]
        cpu_s = np.mean([run["cpu_s"] for run in runs if run["arm"] == arm])
        lines.append(f"| {arm} | {points[arm]:.3f} | {' | '.join(cells)} | {cpu_s:.1f} |")
    return "\n".join(lines)


def header() -> str:
    """Of a cloud's table."""
    marks = " | ".join(f"{mark:g} s" for mark in MARKS_S)
    return f"| arm | runs | {marks} | area | configurations |\n|{'---|' * (len(MARKS_S) + 4)}"


def overall_header() -> str:
    """Of the table over clouds."""
    marks = " | ".join(f"{mark:g} s" for mark in MARKS_S)
    return f"| arm | score | {marks} | own CPU s |\n|{'---|' * (len(MARKS_S) + 3)}"


def score(runs: Runs, clouds: Sequence[str], arm: str) -> float:
    """Mean over clouds of the score of docs/adr/0005, with the yardstick's runs of this folder."""
    found = []
    for cloud in clouds:
        own, least = (
            [area(run, MARKS_S[-1]) for run in runs.get((cloud, name), ())]
            for name in (arm, YARDSTICK)
        )
        if own and least:
            found.append(1 - float(np.mean(own)) / float(np.mean(least)))
    return float(np.mean(found)) if found else math.nan


def interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Mean and 95 % of bootstrap means."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def against_live(modelled: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]) -> str:
    """Rank correlation of the arms' means, kernel by kernel and mark by mark."""
    from scipy.stats import spearmanr

    ours, theirs = grouped(modelled, "kernel"), grouped(live, "kernel")
    lines = ["", "", "rank correlation with live runs (arms in common):"]
    for kernel in sorted({kernel for kernel, _ in ours} & {kernel for kernel, _ in theirs}):
        arms = sorted(
            {arm for k, arm in ours if k == kernel} & {arm for k, arm in theirs if k == kernel}
        )
        if len(arms) < 3:
            continue
        cells = []
        for mark in MARKS_S:
            pairs = [
                [float(np.mean([best_at(r, mark) for r in runs[kernel, arm]])) for arm in arms]
                for runs in (ours, theirs)
            ]
            known = np.isfinite(pairs).all(axis=0)
            if known.sum() >= 3:
                rho = spearmanr(*(np.array(p)[known] for p in pairs)).statistic
                cells.append(f"{mark:g} s {rho:+.2f} ({known.sum()} arms)")
        lines.append(f"  {kernel}: {', '.join(cells)}")
    return "\n".join(lines)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, or of what it is packed into; none without one."""
    packed = path.with_name(path.name + ".gz")
    if packed.is_file():
        text = gzip.decompress(packed.read_bytes()).decode()
    else:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines()]


if __name__ == "__main__":
    main()
