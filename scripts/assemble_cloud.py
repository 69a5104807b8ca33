"""One cloud of a recording, live journals, and what still holds of an earlier cloud.

    scripts/assemble_cloud.py -o BOTH.cloud.parquet RECORDED.cloud.parquet
                              [--journals FILE.jsonl ...] [--earlier OLD.cloud.parquet]
                              [--spellings N]

Of the earlier cloud, whose recorder compiled loads by tensor descriptor as loads through pointers
(tuning_spaces/README.md), those rows are kept that no descriptor is in, and those whose generated
code the new recording made of the same configuration. What it holds of live journals is left out:
name them.

A live search may ask for one code a thousand times, which the engine times once. With --spellings,
further rows of a code that were not timed are left out of journals once it has so many.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from llamea_gpu.spaces.cloud import Cloud, merged
from llamea_gpu.spaces.formats import export_cloud, import_cloud

COLUMNS = (
    *("configurations", "statuses", "times_ms", "low_ms", "high_ms", "compile_s", "benchmark_s"),
    *("control_ms", "source", "how", "run", "at_s"),
)
RECORDER = ".journal"  # ends the name of a recorder's journal


def main() -> None:
    """Write the cloud and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--journals", type=Path, nargs="*", default=[])
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--spellings", type=int, default=6)
    options = parser.parse_args()
    recorded, _ = import_cloud(options.recorded)
    parts = [recorded]
    if options.earlier is not None:
        earlier, _ = import_cloud(options.earlier)
        kept = holds(earlier, recorded) & ~live(earlier)
        print(f"earlier: {kept.sum()} of {np.sum(~live(earlier))} rows hold")
        if kept.any():
            parts.append(rows_of(earlier, kept))
    journals = [import_cloud(path)[0] for path in options.journals]
    if journals:
        parts += few_spellings(merged(journals), options.spellings)
    found = merged(parts)
    export_cloud(found, options.output)
    print(f"{len(found)} rows, {len(set(found.source[found.ok]))} codes that work")


def holds(earlier: Cloud, recorded: Cloud) -> np.ndarray:
    """(N,) whether an earlier row is of the code that its configuration means now."""
    descriptor = np.zeros(len(earlier), dtype=np.bool_)
    for column, values in enumerate(earlier.values):
        loads = [i for i, value in enumerate(values) if "tensor_descriptor" in str(value)]
        descriptor |= np.isin(earlier.configurations[:, column], loads)
    pairs = zip(recorded.configurations.tolist(), recorded.source.tolist(), strict=True)
    codes = {tuple(config): code for config, code in pairs if code}
    rows = zip(earlier.configurations.tolist(), earlier.source.tolist(), strict=True)
    same = [code != "" and codes.get(tuple(config)) == code for config, code in rows]
    return ~descriptor | np.array(same)


def live(cloud: Cloud) -> np.ndarray:
    """(N,) whether a row is of a live journal: KERNEL-SEARCHER-SEED.jsonl."""
    stems = [Path(run.get("file", "")) for run in cloud.runs]
    of_run = [path.suffix == ".jsonl" and path.stem[-2:-1] == "-" for path in stems]
    return np.array(of_run, dtype=np.bool_)[cloud.run]


def few_spellings(journals: Cloud, most: int) -> list[Cloud]:
    """The journals without the untimed rows of a code that has ``most`` rows already."""
    seen: Counter[str] = Counter()
    kept = np.ones(len(journals), dtype=np.bool_)
    for row, (code, seconds) in enumerate(
        zip(journals.source.tolist(), journals.benchmark_s.tolist(), strict=True)
    ):
        kept[row] = not code or seconds > 0 or seen[code] < most
        seen[code] += bool(kept[row])
    return [rows_of(journals, kept)]


def rows_of(cloud: Cloud, kept: np.ndarray) -> Cloud:
    """Some of the rows, and the runs that they are of."""
    columns = {name: getattr(cloud, name)[kept] for name in COLUMNS}
    used, columns["run"] = np.unique(columns["run"], return_inverse=True)
    return replace(cloud, **columns, runs=tuple(cloud.runs[run] for run in used.tolist()))


if __name__ == "__main__":
    main()
