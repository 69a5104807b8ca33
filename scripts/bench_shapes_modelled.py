#!/usr/bin/env python3
"""Beginning with other shapes' best against beginning cold, on models of whole spaces.

    scripts/bench_shapes_modelled.py [--searcher SPEC] [--repeats N] [--workers W]

What scripts/bench_shapes.py measures on a GPU, with many runs: each shape of the kernels of which
three shapes have a cloud is tuned from cold, and with the best configurations of the shapes before
it right after the default, as `tune --shapes all` does. Runs of both have the same seeds. Printed
for each shape but the first: the best so far over the best known, geometric means, and warm over
cold with an interval of 95 % (Student's, over runs). Times are modelled. Needs Helion, but no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import t as student

from llamea_gpu.modelled import WholeTask, load_tasks
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.space import Configuration, Value
from llamea_gpu.tasks import Trace, run_seed

KERNELS = {
    "layer_norm": ("4096x8192", "32768x2048", "32768x16384"),
    "rope": ("2x32x1024x64", "4x32x4096x128", "8x32x8192x128"),
}
MARKS_S = (4.0, 8.0, 15.0, 30.0, 45.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searcher", default="improvement_by_instalments")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    searcher = resolve(options.searcher)
    with Runner.open(options.workers) as runner:
        for kernel, shapes in KERNELS.items():
            tasks = [whole(kernel, shape) for shape in shapes]
            for number, task in enumerate(tasks[1:], start=1):
                known = [best_of(other.cloud) for other in tasks[:number]]
                seeds = [run_seed(0, task.name, repeat) for repeat in range(options.repeats)]
                cold, warm = (
                    [runner.submit(searcher, each, seed) for seed in seeds]
                    for each in (task, begun_with(task, known))
                )
                print(f"{task.name}, begun with the best of {', '.join(shapes[:number])}")
                report(task, [run.result() for run in cold], [run.result() for run in warm])


def whole(kernel: str, shape: str) -> WholeTask:
    """The task of a cloud that ships."""
    (task,) = load_tasks([f"clouds/helion/{kernel}-{shape}-h200"])
    assert isinstance(task, WholeTask)
    return task


def best_of(cloud: Cloud) -> Mapping[str, Value]:
    """The fastest configuration that was measured."""
    row = int(np.nanargmin(np.where(cloud.ok, cloud.times_ms, np.nan)))
    return cloud.value_dict(cloud.configuration(row))


def begun_with(task: WholeTask, known: Sequence[Mapping[str, Value]]) -> WholeTask:
    """The task with those configurations of other shapes that it has, after its default."""
    first, *others = task.cloud.starts
    placed = [config for each in known if (config := placed_in(task.cloud, each)) is not None]
    starts = tuple(dict.fromkeys([first, *placed, *others]))
    return replace(task, cloud=replace(task.cloud, starts=starts))


def placed_in(cloud: Cloud, values: Mapping[str, Value]) -> Configuration | None:
    """Value indices of a configuration of another shape; None where the shape lacks a value."""
    try:
        pairs = zip(cloud.names, cloud.values, strict=True)
        return tuple(known.index(values[name]) for name, known in pairs)
    except (KeyError, ValueError):
        return None


def report(task: WholeTask, cold: Sequence[Trace], warm: Sequence[Trace]) -> None:
    """A line for each moment."""
    for mark_s in MARKS_S:
        logs = [np.log([best_at(task, trace, mark_s) for trace in runs]) for runs in (cold, warm)]
        means = [float(values.mean()) for values in logs]
        error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in logs))
        half = float(student.ppf(0.975, 2 * len(cold) - 2) * error)
        low, middle, high = np.exp(means[1] - means[0] + np.array([-half, 0.0, half]))
        print(
            f"  after {mark_s:g} s: cold {np.exp(means[0]):.3f}, warm {np.exp(means[1]):.3f}; "
            f"warm over cold {middle:.3f} [{low:.3f}, {high:.3f}]"
        )


def best_at(task: WholeTask, trace: Trace, seconds: float) -> float:
    """Best so far over the best known, at least the default's: that is there without tuning."""
    found = trace.cost_ms[(trace.elapsed_s <= seconds) & np.isfinite(trace.cost_ms)]
    return float(min([task.default_ms, *found]) / task.optimum_ms)


if __name__ == "__main__":
    main()
