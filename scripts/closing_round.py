"""What to measure next of whole spaces, so that their models are tested where searchers look.

    scripts/closing_round.py -o FOLDER [--clouds NAME ...] [--searchers SPEC ...]
                             [--propose N] [--visited N] [--repeats N] [--seed N]

For each cloud FOLDER/KERNEL-SHAPE.jsonl, the points that scripts/record_clouds.py measures: the
best predictions (as of ``llamea-gpu spaces model --propose``), the default and the best measured
ones, and then the best unmeasured configurations that each searcher came by in simulated runs on
the model, an equal number of each. What is there is left alone. Needs Helion, but no GPU.

What was measured: ``llamea-gpu spaces model CLOUD --card CARD --confirm MEASURED`` judges the
predictions, ``llamea-gpu spaces import CLOUD MEASURED -o BOTH.cloud.parquet`` adds all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from llamea_gpu.modelled import WholeTask, load_tasks
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.models.proposals import propose, unmeasured, write_proposals
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import list_clouds, search_path_from_environment
from llamea_gpu.spaces.space import Configuration
from llamea_gpu.tasks import run_seed

SEARCHERS = ["steady_state_genetic_algorithm", "main_effect_posterior", "helion:LFBOTreeSearch"]


def main() -> None:
    """Write what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--clouds", nargs="*")
    parser.add_argument("--searchers", nargs="*", default=SEARCHERS)
    parser.add_argument("--propose", type=int, default=50)
    parser.add_argument("--visited", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    folders = search_path_from_environment()
    names = options.clouds or [entry.name for entry in list_clouds(folders)]
    with Runner.open(1) as runner:
        for name in names:
            path = options.output / f"{Path(name).name.removesuffix('-h200')}.jsonl"
            if not path.exists():
                print(write(name, path, options, runner), flush=True)


def write(name: str, path: Path, options: argparse.Namespace, runner: Runner) -> str:
    """One cloud's file; a line about it."""
    (task,) = load_tasks([name], search_path_from_environment())
    model = SpaceModel(task.cloud)
    with task.opened(options.seed) as run:
        rng = np.random.default_rng(options.seed)
        proposals = propose(model, run.places.space, options.propose, rng)
    known = {config for config, _ in proposals}
    visited: dict[Configuration, str] = {}
    found = [
        (spec, [c for c in visits(task, spec, options, runner) if c not in known])
        for spec in options.searchers
    ]
    best = [unmeasured(model, configs, options.visited) for _, configs in found]
    for row in zip_longest(*best):
        for (spec, _), config in zip(found, row, strict=True):
            if config is not None and len(visited) < options.visited:
                visited.setdefault(config, spec)
    write_proposals(model, proposals, path, visited.items())
    predicted = proposals[0][1] if proposals else float("nan")
    return (
        f"{path}: {len(proposals)} predictions, the best of {predicted:.6g} ms (modelled; best "
        f"measured {model.best_ms:.6g} ms), {len(visited)} visited"
    )


def visits(
    task: WholeTask, spec: str, options: argparse.Namespace, runner: Runner
) -> Sequence[Configuration]:
    """What a searcher measured in simulated runs."""
    searcher = resolve(spec)
    runs = [
        runner.submit(searcher, task, run_seed(options.seed, task.name, repeat))
        for repeat in range(options.repeats)
    ]
    rows = [row for run in runs for row in task.visited(run.result()).tolist()]
    return list(dict.fromkeys(map(tuple, rows)))


if __name__ == "__main__":
    main()
