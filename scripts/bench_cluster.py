#!/usr/bin/env python3
"""What runs on a Ray cluster cost beside those of one machine, and what a driver can keep busy.

    scripts/bench_cluster.py [-o OUT.json] [--rounds 3] [--repeats 20] [--searcher NAME]

Two nodes of one core each are started on this machine. Measured, in turns so that what else the
machine does falls on both of a pair alike:

  rate      runs a second of one searcher on the suite `quick`: this machine's runner with one
            worker and a cluster of one node, then with two. Traces must be equal.
  overhead  wall seconds of a run that is alone in the cluster beside the same run here, and the
            driver's CPU seconds a run when each is a task, and in blocks.
  driver    seconds of what evolution does in the driver for each run: a trace unpickled, committed
            to the archive; scores, behaviour and mechanisms of a candidate on a space, a run.

The summary takes the best round of each: other work on the machine only slows. It says how many
cores one driver core keeps busy, by step and by the length of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from llamea_gpu.archive import Archive
from llamea_gpu.bench.suites import suite_spaces
from llamea_gpu.cluster import open_runner
from llamea_gpu.cluster import runner as cluster_runner
from llamea_gpu.evolution.behaviour import describe
from llamea_gpu.evolution.evaluation import _assess, _losses
from llamea_gpu.evolution.mechanisms import mechanisms
from llamea_gpu.runner import BaseRunner, Runner
from llamea_gpu.scoring import score_space
from llamea_gpu.searchers.registry import Searcher, resolve
from llamea_gpu.spaces.catalogue import load_spaces
from llamea_gpu.tasks import Task, Trace, build_tasks, run_seed

Row = dict[str, Any]
BOOTSTRAP = 100  # evolution's own


def run_all(
    runner: BaseRunner, searcher: Searcher, tasks: Sequence[Task], repeats: int
) -> tuple[list[Trace], float, float]:
    """Traces, wall seconds, and CPU seconds of this process."""
    began, cpu = time.perf_counter(), time.process_time()
    runs = [
        runner.submit(searcher, task, run_seed(1, task.name, repeat))
        for task in tasks
        for repeat in range(repeats)
    ]
    traces = [run.result() for run in runs]
    return traces, time.perf_counter() - began, time.process_time() - cpu


def rates(
    runners: dict[str, BaseRunner], searcher: Searcher, tasks: Sequence[Task], arguments: Any
) -> tuple[list[Row], list[Trace]]:
    """The same runs by each runner, in turns."""
    rows: list[Row] = []
    reference: list[Trace] = []
    for runner in runners.values():  # workers, sandboxes and tables are there
        run_all(runner, searcher, tasks, 2)
    for turn in range(arguments.rounds):
        for name, runner in runners.items():
            traces, wall_s, cpu_s = run_all(runner, searcher, tasks, arguments.repeats)
            reference = reference or traces
            for one, other in zip(traces, reference, strict=True):
                assert one.rows.tobytes() == other.rows.tobytes(), f"{name} differs"
                assert one.elapsed_s.tobytes() == other.elapsed_s.tobytes(), f"{name} differs"
            rows.append(
                {
                    "what": "rate",
                    "runner": name,
                    "round": turn,
                    "runs": len(traces),
                    "wall_s": wall_s,
                    "driver_cpu_s": cpu_s,
                    "run_cpu_s": statistics.fmean(trace.cpu_s or 0.0 for trace in traces),
                }
            )
            say(rows[-1])
    return rows, reference


def alone(runners: dict[str, BaseRunner], searcher: Searcher, task: Task, count: int) -> list[Row]:
    """One run at a time."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for seed in range(count):
        for name, runner in runners.items():
            began = time.perf_counter()
            runner.run(searcher, task, seed)
            seconds[name].append(time.perf_counter() - began)
    rows = [
        {"what": "alone", "runner": name, "median_s": statistics.median(found)}
        for name, found in seconds.items()
    ]
    for row in rows:
        say(row)
    return rows


def driver(
    tasks: Sequence[Task], traces: Sequence[Trace], repeats: int, cluster: BaseRunner
) -> list[Row]:
    """What evolution does for each run, in seconds a run."""
    by_task = {task: traces[n * repeats : (n + 1) * repeats] for n, task in enumerate(tasks)}
    packed = [pickle.dumps(trace) for trace in traces]
    found = {
        "unpickle": timed(lambda: [pickle.loads(one) for one in packed]),
        "score": timed(lambda: [score_space(t, own, BOOTSTRAP) for t, own in by_task.items()]),
        "behaviour": timed(lambda: [describe(t, own) for t, own in by_task.items()]),
        "mechanisms": timed(lambda: mechanisms({t: list(own) for t, own in by_task.items()})),
    }

    def scored_there() -> None:
        scoring = [cluster.compute(_assess, [t], own, BOOTSTRAP) for t, own in by_task.items()]
        scoring.append(cluster.compute(_losses, tasks, list(by_task.values())))
        for each in scoring:
            each.result()

    scored_there()  # once, so that all is there
    found["score, behaviour and mechanisms on the nodes"] = timed(scored_there)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive.create(Path(folder) / "run", {})
        numbered = list(enumerate(traces))
        found["archive"] = timed(
            lambda: [archive.record_trace(0, 0, "space", n, trace) for n, trace in numbered],
            time.perf_counter,  # the disk's time counts
        )
        archive.close()
    rows = [
        {"what": "driver", "step": step, "seconds_a_run": seconds / len(traces)}
        for step, seconds in found.items()
    ]
    rows.append({"what": "trace", "bytes": statistics.fmean(map(len, packed))})
    for row in rows:
        say(row)
    return rows


def timed(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of a call; CPU seconds, which other processes of a busy machine do not change."""
    began = clock()
    call()
    return clock() - began


def summary(rows: Sequence[Row]) -> str:
    """Rates beside this machine's, and how many cores each step keeps busy."""
    rate = [row for row in rows if row["what"] == "rate"]
    lines = ["runner                runs/s (best)   driver CPU ms a run"]
    for name in dict.fromkeys(row["runner"] for row in rate):
        own = [row for row in rate if row["runner"] == name]
        per_s = max(row["runs"] / row["wall_s"] for row in own)
        cpu_ms = 1e3 * min(row["driver_cpu_s"] / row["runs"] for row in own)
        lines.append(f"{name:18s} {per_s:10.1f} {cpu_ms:20.2f}")
    for row in rows:
        if row["what"] == "alone":
            lines.append(f"one run alone, {row['runner']}: {1e3 * row['median_s']:.1f} ms")
    steps = {row["step"]: row["seconds_a_run"] for row in rows if row["what"] == "driver"}
    for name in ("two nodes", "two nodes, blocks of 1"):
        own = [row["driver_cpu_s"] / row["runs"] for row in rate if row["runner"] == name]
        steps[f"handing out, {name}"] = min(own)
    lengths = (0.03, 0.3, 3.0)
    heads = "".join(f"{length:>9g}-s runs" for length in lengths)
    lines.append(f"one driver core keeps so many cores busy with {heads}")
    here, there = 0.0, 0.0
    for step, seconds in sorted(steps.items(), key=lambda item: -item[1]):
        lines.append(_cores(step, seconds, lengths))
        if step in ("archive", "handing out, two nodes"):  # which takes traces in, too
            here, there = here + seconds, there + seconds
        here += seconds if step in ("score", "behaviour", "mechanisms") else 0.0
        there += seconds if step.endswith("on the nodes") else 0.0
    lines.append(_cores("all, scores on the driver", here, lengths))
    lines.append(_cores("all, scores on the nodes", there, lengths))
    run_s = statistics.median(row["run_cpu_s"] for row in rate)
    lines.append(f"a run of these searchers takes {1e3 * run_s:.1f} ms of CPU in its child")
    return "\n".join(lines)


def _cores(step: str, seconds: float, lengths: Sequence[float]) -> str:
    cores = "".join(f"{length / seconds:14.0f}" for length in lengths)
    return f"  {step:46s} {1e3 * seconds:7.3f} ms a run {cores}"


def say(row: Row) -> None:
    print(json.dumps(row), file=sys.stderr, flush=True)


def measure(arguments: Any) -> list[Row]:
    import ray
    from ray.cluster_utils import Cluster

    tasks = build_tasks(load_spaces(suite_spaces("quick")))
    searcher = resolve(arguments.searcher)
    usual = cluster_runner._LONGEST_BLOCK
    one_core = {"num_cpus": 1, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=one_core)
    runners: dict[str, BaseRunner]
    try:
        with Runner.open(1) as here, open_runner(nodes.address) as there:
            runners = {"here, 1 worker": here, "one node": there}
            rows, traces = rates(runners, searcher, tasks, arguments)
            rows += alone(runners, searcher, tasks[0], arguments.repeats)
        nodes.add_node(num_cpus=1)
        with Runner.open(2) as here, open_runner(nodes.address) as there:
            runners = {"here, 2 workers": here, "two nodes": there}
            rows += rates(runners, searcher, tasks, arguments)[0]
            cluster_runner._LONGEST_BLOCK = 1
            rows += rates({"two nodes, blocks of 1": there}, searcher, tasks, arguments)[0]
            cluster_runner._LONGEST_BLOCK = usual
            rows += driver(tasks, traces, arguments.repeats, there)
    finally:
        ray.shutdown()
        nodes.shutdown()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--searcher", default="genetic_algorithm")
    arguments = parser.parse_args()
    rows = measure(arguments)
    if arguments.output is not None:
        arguments.output.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
