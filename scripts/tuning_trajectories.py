"""What live tuning runs of a Kernel Tuner kernel came to, by configurations and by seconds.

    python scripts/tuning_trajectories.py OUT/tuning.jsonl --space convolution-2048x2048x21

reads what ``scripts/h200_kernel_tuner.py`` wrote and prints Markdown, a row a run. A configuration
counts once, when it is first measured, and its quality is its time **in the recording** of the
same kernel, relative to the recording's optimum: so all runs are compared by the same readings,
and none profits from a lucky one. Configurations that the recording does not hold are an error.
Seconds are Kernel Tuner's timestamps, from the first result on.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.recording import Recording

WITHIN = (1.05, 1.02, 1.01, 1.0)
SECONDS = (2, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tuning", type=Path, nargs="+", help="tuning.jsonl")
    parser.add_argument("--space", required=True, help="the recording of that kernel")
    options = parser.parse_args()
    recording = load_space(options.space)
    head = ["way", "asked", "distinct", "measuring"]
    head += [f"to {(ratio - 1) * 100:.0f} %" if ratio > 1 else "to the optimum" for ratio in WITHIN]
    head += [f"after {seconds} s" for seconds in SECONDS]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for path in options.tuning:
        for line in path.read_text().splitlines():
            print(f"| {' | '.join(row(json.loads(line), recording))} |")


def row(run: dict[str, Any], recording: Recording) -> list[str]:
    """One run's cells."""
    first: dict[tuple[int, ...], dict[str, Any]] = {}
    for evaluation in run["evaluations"]:
        first.setdefault(indices(evaluation["configuration"], recording), evaluation)
    start = datetime.fromisoformat(run["evaluations"][0]["timestamp"])
    at_s = np.array([seconds_between(start, e["timestamp"]) for e in first.values()])
    recorded_ms = np.array([recording.time_ms[recording.space.row(config)] for config in first])
    best = np.minimum.accumulate(recorded_ms) / recording.optimum_ms
    optimizer = f" ({run['optimizer']})" if run["optimizer"] else ""
    busy_s = sum(evaluation["seconds"] for evaluation in first.values())
    cells = [f"{run['way']}{optimizer}", f"{len(run['evaluations']):,}", f"{len(first):,}"]
    cells.append(f"{busy_s:.1f} of {run['seconds']:.1f} s")
    for ratio in WITHIN:
        reached = np.flatnonzero(best <= ratio * (1 + 1e-12))
        cells.append(f"{reached[0] + 1} ({at_s[reached[0]]:.1f} s)" if len(reached) else "–")
    for seconds in SECONDS:
        done = int(np.searchsorted(at_s, seconds, side="right"))
        cells.append(f"{best[done - 1]:.4f} ({done})")
    return cells


def indices(configuration: dict[str, Any], recording: Recording) -> tuple[int, ...]:
    space = recording.space
    return tuple(
        values.index(configuration[name])
        for name, values in zip(space.names, space.values, strict=True)
    )


def seconds_between(start: datetime, timestamp: str) -> float:
    return (datetime.fromisoformat(timestamp) - start).total_seconds()


if __name__ == "__main__":
    main()
