"""How long a candidate's fitness takes on modelled whole spaces: all clouds x repeats.

    scripts/bench_whole_tasks.py [--searchers SPEC ...] [--clouds NAME ...] [--repeats N]
                                 [--workers W]

Each searcher is run on every cloud, as an evolution does, after one run of each cloud that binds
the kernels (not counted: once a session). Prints seconds of real time and CPU seconds of all
processes, sandboxed children included, and how many configurations were measured. Needs Helion,
but no GPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from concurrent.futures import wait

from llamea_gpu.modelled import load_tasks
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import list_clouds, search_path_from_environment
from llamea_gpu.tasks import run_seed

SEARCHERS = ["steady_state_genetic_algorithm", "iterated_local_search", "growing_foresight"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searchers", nargs="*", default=SEARCHERS)
    parser.add_argument("--clouds", nargs="*")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    folders = search_path_from_environment()
    names = options.clouds or [e.name for e in list_clouds(folders) if "helion" in e.name]
    tasks = load_tasks(names, folders)
    with Runner.open(options.workers) as runner:
        first = resolve("random_search")
        begin = time.perf_counter()
        wait([runner.submit(first, task, 0) for task in tasks for _ in range(options.workers)])
        print(f"{len(tasks)} clouds bound: {time.perf_counter() - begin:.1f} s", flush=True)
        for spec in options.searchers:
            searcher = resolve(spec)
            begin, used = time.perf_counter(), cpu_s()
            runs = [
                runner.submit(searcher, task, run_seed(1, task.name, repeat))
                for repeat in range(options.repeats)
                for task in tasks
            ]
            traces = [run.result() for run in runs]
            print(
                f"{spec}: {len(runs)} runs, {sum(t.rows.size for t in traces)} configurations: "
                f"{time.perf_counter() - begin:.1f} s of real time, {cpu_s() - used:.1f} CPU s "
                f"({sum(t.cpu_s or 0 for t in traces):.1f} of them the searcher's own), "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has started, as far as they are alive."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    ticks = os.sysconf("SC_CLK_TCK")
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / ticks  # its own and its children's that have ended
    return total


def descendants() -> list[int]:
    """Processes below this one."""
    found, todo = [], [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    below = list(map(int, file.read().split()))
                found += below
                todo += below
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
