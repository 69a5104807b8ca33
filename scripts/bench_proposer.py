"""How good `llm:` and `hybrid:` searchers are on recordings, for how many configurations.

    python scripts/bench_proposer.py --searcher llm:MODEL --searcher 'hybrid:llm:MODEL?rounds=1+X' \
        --space matmul-2048 --space layer_norm-4096x8192 --repeats 5 --workers 10 -o results.jsonl

Models are reached as docs/proposer.md says; with the batch exchange or a slow server use as many
workers as runs. Beside the given searchers it runs the comparisons of --against. The budget is a
number of configurations (--evaluations), the same for all, so that what is compared is how well
they were chosen; times are those of the recording's clock. Each run is one line of the results
file, written when it ends; runs that are there already are not repeated.

Prints, for each searcher: configurations used, best / optimum at several counts, and for `llm:`
(where LLAMEA_GPU_LLM_RECORD is set or a folder is made for it) after each of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import Searcher, resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace, run_seed

AGAINST = ("helion:LFBOTreeSearch?effort=full&start=default", "random_search")
COUNTS = (11, 26, 41, 56, 71, 100, 200)


def main() -> None:
    arguments = parse()
    recordings = [load(name) for name in arguments.space]
    specs = [*arguments.searcher, *(arguments.against or AGAINST)]
    searchers = {spec: resolve(spec) for spec in specs}
    tasks = {r.info.name: counted_task(r, arguments.evaluations) for r in recordings}
    if "LLAMEA_GPU_LLM_RECORD" not in os.environ:
        os.environ["LLAMEA_GPU_LLM_RECORD"] = tempfile.mkdtemp(prefix="proposer-")
    print(f"conversations: {os.environ['LLAMEA_GPU_LLM_RECORD']}", file=sys.stderr)
    done = read_results(arguments.output)
    with Runner.open(workers=arguments.workers) as runner, arguments.output.open("a") as file:
        for line in run_missing(runner, searchers, tasks, arguments.repeats, done):
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.append(line)
    for spec in specs:
        report(spec, [line for line in done if line["searcher"] == spec], tasks)
    report_rounds(Path(os.environ["LLAMEA_GPU_LLM_RECORD"]), tasks)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--searcher", action="append", required=True)
    parser.add_argument("--against", action="append", help=f"instead of {', '.join(AGAINST)}")
    parser.add_argument("--space", action="append", required=True, help="a name or a file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("proposer.jsonl"))
    return parser.parse_args()


def load(name: str) -> Recording:
    return import_recording(Path(name))[0] if Path(name).is_file() else load_space(name)


def counted_task(recording: Recording, evaluations: int) -> Task:
    """A task whose budget is a number of configurations; a batch compiles side by side."""
    built = Task.build(recording)
    count = recording.space.size
    even = replace(recording, compile_s=np.zeros(count), benchmark_s=np.ones(count))
    return replace(built, recording=even, budget_s=float(evaluations))


def read_results(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def run_missing(
    runner: Runner,
    searchers: dict[str, Searcher],
    tasks: dict[str, Task],
    repeats: int,
    done: Sequence[dict[str, Any]],
) -> Iterable[dict[str, Any]]:
    known = {(line["searcher"], line["space"], line["repeat"]) for line in done}
    runs = {}
    for repeat in range(repeats):
        for space, task in tasks.items():
            for spec, searcher in searchers.items():
                if (spec, space, repeat) not in known:
                    future = runner.submit(searcher, task, run_seed(1, space, repeat))
                    runs[future] = (spec, space, repeat)
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


def report(spec: str, lines: Sequence[dict[str, Any]], tasks: dict[str, Task]) -> None:
    """Geometric mean over runs of best / optimum, after so many configurations."""
    curves = []
    for line in lines:
        if line["space"] in tasks:
            costs = np.array([np.inf if c is None else c for c in line["cost_ms"]] or [np.inf])
            best = np.minimum.accumulate(costs) / tasks[line["space"]].optimum_ms
            curves.append(best)
    if not curves:
        return
    used = [len(curve) for curve in curves]
    print(f"\n{spec}\n  {len(curves)} runs, {np.median(used):.0f} configurations used (median)")
    for count in COUNTS:
        found = np.array([curve[min(count, len(curve)) - 1] for curve in curves])
        if count > max(used) and count != COUNTS[0]:
            break
        worked = found[np.isfinite(found)]
        if len(worked):
            near = "  ".join(f"{np.mean(found <= 1 + x):4.0%} within {x:.0%}" for x in (0.05, 0.01))
            print(f"  after {count:3d}: best / optimum {np.exp(np.log(worked).mean()):.4f}  {near}")
    for trouble in sorted({line["error"] for line in lines if line["error"]}):
        print(f"  in spite of: {trouble[:300]}")


def report_rounds(folder: Path, tasks: dict[str, Task]) -> None:
    """The rounds of every proposer, as it recorded them."""
    by_round: dict[tuple[str, int], list[tuple[int, float, int]]] = {}
    for path in sorted(folder.glob("*.rounds.json")):
        document = json.loads(path.read_text())
        settings = document["settings"]
        label = f"llm:{settings['model']} ({document['run_id'].rsplit('-', 1)[1]})"
        for each in document["rounds"]:
            if each["best_ms"] is not None and document.get("space") in tasks:
                ratio = each["best_ms"] / tasks[document["space"]].optimum_ms
                entry = (each["measured"], ratio, each["tokens"])
                by_round.setdefault((label, each["number"]), []).append(entry)
    for (label, number), entries in sorted(by_round.items()):
        measured, ratios, tokens = (
            np.array(column, dtype=float) for column in zip(*entries, strict=True)
        )
        print(
            f"{label} round {number}: {len(entries)} runs, {measured.mean():.1f} configurations, "
            f"best / optimum {np.exp(np.log(ratios).mean()):.4f}, {tokens.mean():.0f} tokens"
        )


if __name__ == "__main__":
    main()
