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
each other searcher after as many; what they come to in the end; both for each recording; and, with
the first of --against as the yardstick, how good the proposer is beside its end after a tenth of
its configurations and after each round, and how many configurations it needs to be as good (every
run of the one against every run of the other).
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

from llamea_gpu.live.recordings import counted_task
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
Round = tuple[float, float, float, int]  # configurations, best / optimum, tokens, refused
Rounds = dict[str, dict[int, list[Round]]]  # by recording and number of the round
Curves = dict[str, dict[str, list[np.ndarray]]]  # best / optimum: by searcher and recording


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
    names = names_of(curves)
    rounds = rounds_of(arguments.record, tasks, proposer)
    print_rounds(rounds, curves, proposer, names)
    print_ends(curves, names)
    print_recordings(curves, names)
    print_yardstick(rounds, curves, proposer, against[0])
    print("\n" + "\n".join(f"- {name}: `{shipped(spec)}`" for spec, name in names.items()))


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
) -> dict[str, list[np.ndarray]]:
    """Best / optimum after each configuration, one array a run, by recording."""
    curves: dict[str, list[np.ndarray]] = {space: [] for space in tasks}
    for line in sorted(lines, key=lambda line: int(line["repeat"])):
        space = line["space"]
        if (space, line["repeat"]) in wanted:
            if line["error"]:
                print(f"{line['searcher']} on {space}: {line['error']}", file=sys.stderr)
            costs = np.array([np.inf if c is None else c for c in line["cost_ms"]] or [np.inf])
            curves[space].append(np.minimum.accumulate(costs) / tasks[space].optimum_ms)
    return curves


def level(curves: Sequence[np.ndarray], count: float) -> float:
    """Geometric mean over runs of best / optimum after so many configurations."""
    found = np.array([curve[min(round(count), len(curve)) - 1] for curve in curves])
    return float(np.exp(np.log(found).mean()))


def after(curves: Sequence[np.ndarray], count: float) -> str:
    """``level`` as text; runs in which nothing worked yet are counted apart."""
    worked = [c for c in curves if np.isfinite(c[min(round(count), len(c)) - 1])]
    if not worked:
        return "–"
    text = f"{level(worked, count):.4f}"
    return text if len(worked) == len(curves) else f"{text} ({len(curves) - len(worked)} of none)"


def rounds_of(folder: Path, tasks: dict[str, Task], proposer: str) -> Rounds:
    """What the kept rounds of each run say."""
    found: Rounds = {space: {} for space in tasks}
    for path in sorted(folder.glob("*.rounds.json")):
        document = json.loads(path.read_text())
        if document["space"] not in tasks or document["settings"]["model"] not in proposer:
            continue
        optimum_ms = tasks[document["space"]].optimum_ms
        for each in document["rounds"]:
            if each["best_ms"] is not None:
                refused = sum("refused" in note for note in each["notes"])
                entry = (each["measured"], each["best_ms"] / optimum_ms, each["tokens"], refused)
                found[document["space"]].setdefault(each["number"], []).append(entry)
    return found


def print_rounds(rounds: Rounds, curves: Curves, proposer: str, names: dict[str, str]) -> None:
    """After each round of the proposer: itself, and the others after as many configurations.

    All recordings together with the mean number of configurations, then each on its own.
    """
    others = [spec for spec in curves if not spec.startswith(("llm:", "hybrid:")) and curves[spec]]
    head = "".join(f" {names[spec]} |" for spec in (proposer, *others))
    print(f"| after round | configurations | tokens | refused |{head}")
    print("|---" * (5 + len(others)) + "|")
    numbers = sorted({number for of_space in rounds.values() for number in of_space})
    for number in numbers:
        entries = [entry for of_space in rounds.values() for entry in of_space.get(number, [])]
        measured, _, tokens, refused = np.array(entries, dtype=float).T
        cells = [f"{measured.mean():.1f}", f"{tokens.mean():.0f}", f"{refused.mean():.1f}"]
        cells.append(f"{mean_ratio(entries):.4f}")
        cells += [after(runs(curves[spec]), measured.mean()) for spec in others]
        print(f"| {number} ({len(entries)} runs) | {' | '.join(cells)} |")
    print(f"\n| recording | first configuration | after round | configurations |{head}")
    print("|---" * (5 + len(others)) + "|")
    for space, of_space in rounds.items():
        for number, entries in sorted(of_space.items()):
            count = np.mean([measured for measured, *_ in entries])
            cells = [space, after(curves[proposer][space], 1), str(number), f"{count:.1f}"]
            cells.append(f"{mean_ratio(entries):.4f}")
            cells += [after(curves[spec][space], np.ceil(count)) for spec in others]
            print(f"| {' | '.join(cells)} |")


def mean_ratio(entries: Sequence[Round]) -> float:
    """Geometric mean of best / optimum."""
    return float(np.exp(np.mean([np.log(ratio) for _, ratio, *_ in entries])))


def print_ends(curves: Curves, names: dict[str, str]) -> None:
    """What every searcher comes to, and how many configurations it took."""
    print("\n| searcher | runs | configurations | best / optimum | worst run | ≤ 5 % | ≤ 1 % |")
    print("|---" * 7 + "|")
    for spec, of_spec in curves.items():
        if found := runs(of_spec):
            ends = np.array([curve[-1] for curve in found])
            used = np.mean([len(curve) for curve in found])
            print(
                f"| {names[spec]} | {len(found)} | {used:.0f} | {after(found, 1e9)} | "
                f"{ends.max():.3f} | {np.mean(ends <= 1.05):.0%} | {np.mean(ends <= 1.01):.0%} |"
            )


def print_recordings(curves: Curves, names: dict[str, str]) -> None:
    """For each recording: best / optimum and configurations of everybody in the end."""
    shown = [spec for spec in curves if runs(curves[spec])]
    print("\n| recording |" + "".join(f" {names[spec]} |" for spec in shown))
    print("|---" * (1 + len(shown)) + "|")
    for space in curves[shown[0]]:
        found = [curves[spec][space] for spec in shown]
        used = [np.mean([len(curve) for curve in each]) for each in found]
        cells = [f"{after(each, 1e9)} ({n:.0f})" for each, n in zip(found, used, strict=True)]
        print(f"| {space} | {' | '.join(cells)} |")


def print_yardstick(rounds: Rounds, curves: Curves, proposer: str, other: str) -> None:
    """The proposer relative to where ``other`` ends, and what ``other`` needs to be as good."""
    ours, theirs = curves[proposer], curves[other]
    whole = float(np.mean([len(curve) for curve in runs(theirs)]))
    tenth = round(whole / 10)
    stages = {
        "a tenth of its configurations": {
            space: [(tenth, float(curve[min(tenth, len(curve)) - 1])) for curve in found]
            for space, found in ours.items()
        }
    }
    for number in sorted({number for of_space in rounds.values() for number in of_space}):
        stages[f"round {number}"] = {
            space: [(int(measured), ratio) for measured, ratio, *_ in of_space.get(number, [])]
            for space, of_space in rounds.items()
        }
    print("\n| after | configurations | of its own | best / its end (worst recording) ", end="")
    print("| recordings > 5 % behind | it needs (median) | of the proposer's | never |")
    print("|---" * 8 + "|")
    for title, reached in stages.items():
        print(f"| {title} | {yardstick_cells(reached, theirs, whole)} |")


def yardstick_cells(
    reached: dict[str, list[tuple[int, float]]], theirs: dict[str, list[np.ndarray]], whole: float
) -> str:
    """A row: (configurations, best / optimum) of each run, against every run of the other."""
    behind, used, needed = [], [], []
    for space, found in reached.items():
        best = np.exp(np.mean([np.log(ratio) for _, ratio in found]))
        behind.append(best / level(theirs[space], 1e9))
        for count, ratio in found:
            for curve in theirs[space]:
                as_good = np.flatnonzero(curve <= ratio * (1 + 1e-12))
                used.append(count)
                needed.append(as_good[0] + 1 if len(as_good) else np.inf)
    mean, times = np.mean(used), np.median(np.array(needed) / np.array(used))
    return (
        f"{mean:.0f} | {mean / whole:.0%} | "
        f"{np.exp(np.log(behind).mean()):.4f} ({max(behind):.3f}) | "
        f"{sum(ratio > 1.05 for ratio in behind)} of {len(behind)} | {np.median(needed):.0f} | "
        f"{times:.1f} times | {np.mean(np.isinf(needed)):.0%}"
    )


def shipped(spec: str) -> str:
    """The spec with files that ship named as from the project's folder."""
    return spec.replace(f"{resource_dir('generated_optimizers').parent}{os.sep}", "")


def runs(curves: dict[str, list[np.ndarray]]) -> list[np.ndarray]:
    """Those of all recordings."""
    return [curve for of_space in curves.values() for curve in of_space]


def names_of(specs: Iterable[str]) -> dict[str, str]:
    """Names short enough for a table's head: without settings, and without most folders."""
    found: dict[str, str] = {}
    for spec in specs:
        first, plus, following = spec.removeprefix("hybrid:").partition("+")
        parts = [first.partition("?")[0], following.partition("?")[0]]
        parts = ["/".join(Path(p).parts[-2:]) if p.endswith(".py") else p for p in parts]
        name = ("hybrid:" if plus else "") + plus.join(parts)
        found[spec] = spec if name in found.values() else name
    return found


if __name__ == "__main__":
    main()
