"""How good `llm:` and `hybrid:` searchers are on recordings, for how many configurations.

    python scripts/bench_proposer.py MODEL --space attention-2x32x1024x64 \
        --space convolution-2048x2048x21 ... --record generated_optimizers/proposer -o p.jsonl

asks MODEL for two rounds on each recording, three times each, all side by side: with the batch
exchange (LLAMEA_GPU_LLM_ROUTE=batch, docs/proposer.md) all first prompts wait for their answers at
once, and then all refinements. Then it runs what the proposer is compared with (--against), and
hybrids that begin with the same recorded answers (--hybrid NEXT). Conversations and rounds are kept
in --record, from which the same command with LLAMEA_GPU_LLM_ROUTE=replay and
LLAMEA_GPU_LLM_RECORDING=FOLDER repeats every run without a model.

The budget is a number of configurations (--evaluations), the same for all, so that what is compared
is how well they were chosen. Each run is one line of the results file, written when it ends; runs
that are there already are not repeated.

Prints Markdown: configurations used and best / optimum after each round, beside random search and
each other searcher after as many, and what they come to in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.integrations.tuning.recordings import counted_task
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace, run_seed

AGAINST = ("helion:LFBOTreeSearch?effort=full&start=default", "random_search")
SETTINGS = "rounds=2&batch=20&initial=10&patience=9&max_tokens=16384&fallback=none"
SEED = 1
Line = dict[str, Any]


def main() -> None:
    arguments = parse()
    tasks = {r.info.name: task for r, task in map(counted(arguments.evaluations), arguments.space)}
    proposer = f"llm:{arguments.model}?{arguments.settings}"
    hybrids = [f"hybrid:{proposer}&route=replay&tag=+{following}" for following in arguments.hybrid]
    against = [*(arguments.against or [*AGAINST, *best_generated()])]
    os.environ["LLAMEA_GPU_LLM_RECORD"] = str(arguments.record)
    done = read_results(arguments.output)
    runs = len(tasks) * arguments.repeats
    for specs, workers in (([proposer], arguments.askers or runs), (against, arguments.workers)):
        bench(specs, tasks, arguments, workers, done)
    del os.environ["LLAMEA_GPU_LLM_RECORD"]
    os.environ["LLAMEA_GPU_LLM_RECORDING"] = str(arguments.record)
    bench(hybrids, tasks, arguments, arguments.workers, done)
    wanted = {(space, repeat) for space in tasks for repeat in range(arguments.repeats)}
    curves = {
        spec: curves_of([line for line in done if line["searcher"] == spec], tasks, wanted)
        for spec in (proposer, *hybrids, *against)
    }
    print_rounds(arguments.record, tasks, curves, proposer)
    print_ends(curves)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--space", action="append", required=True, help="a name or a file")
    parser.add_argument("--settings", default=SETTINGS, help="of llm:")
    parser.add_argument("--hybrid", action="append", default=[], metavar="NEXT")
    parser.add_argument("--against", action="append", help=f"instead of {', '.join(AGAINST)}, best")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=800)
    parser.add_argument("--askers", type=int, help="default: all runs at once")
    parser.add_argument("--workers", type=int, default=2, help="for what asks nobody")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, default=Path("proposer.jsonl"))
    return parser.parse_args()


def counted(evaluations: int) -> Callable[[str], tuple[Recording, Task]]:
    def load(name: str) -> tuple[Recording, Task]:
        path = Path(name)
        recording = import_recording(path)[0] if path.is_file() else load_space(name)
        return recording, counted_task(Task.build(recording), evaluations)

    return load


def best_generated() -> list[str]:
    """The first generated optimizer that ships, else the best of a recorded run."""
    folder = resource_dir("generated_optimizers")
    found = [*sorted(folder.glob("*.py")), *sorted(folder.glob("runs/*/best.py"))]
    return [str(path) for path in found[:1]]


def bench(
    specs: Sequence[str],
    tasks: dict[str, Task],
    arguments: argparse.Namespace,
    workers: int,
    done: list[Line],
) -> None:
    """Run what is missing, write each line as it comes, and add it to ``done``."""
    known = {(line["searcher"], line["space"], line["repeat"]) for line in done}
    missing = [
        (spec, space, repeat)
        for repeat in range(arguments.repeats)
        for space in tasks
        for spec in specs
        if (spec, space, repeat) not in known
    ]
    if not missing:
        return
    print(f"{len(missing)} runs, {workers} side by side", file=sys.stderr)
    with Runner.open(workers=workers) as runner, arguments.output.open("a") as file:
        for line in run_all(runner, missing, tasks):
            if line["error"] and "llm:" in line["searcher"]:  # asked again by the next call
                print(f"{line['searcher']} on {line['space']}: {line['error']}", file=sys.stderr)
                continue
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.append(line)


def run_all(
    runner: Runner, missing: Sequence[tuple[str, str, int]], tasks: dict[str, Task]
) -> Iterable[Line]:
    runs = {
        runner.submit(
            resolve(fitting(spec, tasks[space])), tasks[space], run_seed(SEED, space, repeat)
        ): (spec, space, repeat)
        for spec, space, repeat in missing
    }
    for future in as_completed(runs):
        spec, space, repeat = runs[future]
        trace: Trace = future.result()
        yield {
            "searcher": spec,
            "space": space,
            "repeat": repeat,
            "outcome": trace.outcome,
            "error": trace.error,
            "cost_ms": [None if np.isinf(cost) else cost for cost in trace.cost_ms.tolist()],
        }


def fitting(spec: str, task: Task) -> str:
    """The spec for a recording, which may not name a default configuration to start from."""
    if task.recording.info.default_configuration is None:
        return spec.replace("start=default", "start=random")
    return spec


def read_results(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def curves_of(
    lines: Sequence[Line], tasks: dict[str, Task], wanted: set[tuple[str, int]]
) -> list[np.ndarray]:
    """Best / optimum after each configuration, one array a run."""
    curves = []
    for line in lines:
        if (line["space"], line["repeat"]) in wanted:
            if line["error"]:
                print(f"{line['searcher']} on {line['space']}: {line['error']}", file=sys.stderr)
            costs = np.array([np.inf if c is None else c for c in line["cost_ms"]] or [np.inf])
            curves.append(np.minimum.accumulate(costs) / tasks[line["space"]].optimum_ms)
    return curves


def after(curves: Sequence[np.ndarray], count: float) -> str:
    """Geometric mean over runs of best / optimum after so many configurations."""
    found = np.array([curve[min(round(count), len(curve)) - 1] for curve in curves])
    worked = found[np.isfinite(found)]
    if not len(worked):
        return "–"
    text = f"{np.exp(np.log(worked).mean()):.4f}"
    return text if len(worked) == len(found) else f"{text} ({len(found) - len(worked)} of none)"


def print_rounds(
    folder: Path, tasks: dict[str, Task], curves: dict[str, list[np.ndarray]], proposer: str
) -> None:
    """After each round of the proposer: itself, and the others after as many configurations."""
    by_round: dict[int, list[tuple[int, float, int, int]]] = {}
    for path in sorted(folder.glob("*.rounds.json")):
        document = json.loads(path.read_text())
        optimum_ms = tasks[document["space"]].optimum_ms if document["space"] in tasks else None
        if optimum_ms is None or document["settings"]["model"] not in proposer:
            continue
        for each in document["rounds"]:
            if each["best_ms"] is not None:
                refused = sum("refused" in note for note in each["notes"])
                entry = (each["measured"], each["best_ms"] / optimum_ms, each["tokens"], refused)
                by_round.setdefault(each["number"], []).append(entry)
    others = [spec for spec in curves if not spec.startswith(("llm:", "hybrid:")) and curves[spec]]
    print(f"| after round | configurations | {proposer} | tokens | refused |", end="")
    print("".join(f" {short(spec)} |" for spec in others))
    print("|---" * (5 + len(others)) + "|")
    for number, entries in sorted(by_round.items()):
        measured, ratios, tokens, refused = np.array(entries, dtype=float).T
        count = measured.mean()
        print(
            f"| {number} ({len(entries)} runs) | {count:.1f} | "
            f"{np.exp(np.log(ratios).mean()):.4f} | {tokens.mean():.0f} | {refused.mean():.1f} |"
            + "".join(f" {after(curves[spec], count)} |" for spec in others)
        )


def print_ends(curves: dict[str, list[np.ndarray]]) -> None:
    """What every searcher comes to, and how many configurations it took."""
    print("\n| searcher | runs | configurations | best / optimum | worst run | ≤ 5 % | ≤ 1 % |")
    print("|---" * 7 + "|")
    for spec, found in curves.items():
        if found:
            ends = np.array([curve[-1] for curve in found])
            used = np.mean([len(curve) for curve in found])
            print(
                f"| {short(spec)} | {len(found)} | {used:.0f} | {after(found, 1e9)} | "
                f"{ends.max():.3f} | {np.mean(ends <= 1.05):.0%} | {np.mean(ends <= 1.01):.0%} |"
            )


def short(spec: str) -> str:
    """A spec without folders."""
    return Path(spec).name if "/" in spec and ":" not in spec else spec


if __name__ == "__main__":
    main()
