"""Rate of the recorder, new recordings, and a live comparison of searchers, on a GPU machine.

    PYTHONPATH=. python scripts/h200_helion.py OUT --seconds 560
    PYTHONPATH=. python scripts/h200_helion.py OUT2 --seconds 560 --continue-from OUT
    PYTHONPATH=. python scripts/h200_helion.py OUT --summary

A call ends by itself before ``--seconds`` are over; another one continues from what it wrote. Any
step may fail alone. What is written, as it comes:

1. ``rate.json``: scripts/bench_helion_recorder.py, the recorder beside Helion's FiniteSearch.
2. ``NAME.parquet``: a recording of each of RECORDED, or a part of its grid (a random sample) where
   ``--record-seconds`` were up first. The recording says which.
3. ``searches.jsonl``: a line for each kernel and searcher: configurations measured, seconds, and
   the configuration found; Helion's log of each search is beside it (``KERNEL-SEARCHER.csv``).
   When a kernel's searches are done, ``final.jsonl`` gets a line with the times of all their
   results, of Helion's default and of the reference, measured again in turns.

``--summary`` prints the comparison of what is there: for each searcher the geometric mean over the
kernels of its time relative to LFBOTreeSearch at full effort, of seconds and of configurations.

Every search has the same cap (``--search-seconds``, Helion's ``autotune_budget_seconds``), but for
LFBOTreeSearch at full effort, which the others are compared with (``--baseline-seconds``); the same
limit for compiling one configuration (``--compile-timeout``; Helion's own, 60 s, can hold up a
batch beyond any cap), the same random seed, a cold cache, and the same machine. Searchers are
Helion's own, written ``helion:NAME@EFFORT``, or ours, as for ``llamea-gpu run``, with
``@EVALUATIONS``.
"""

# Besides llamea_gpu (numpy, scipy, scikit-learn, pyarrow, rich, typer, jinja2) this needs helion,
# torch and triton.

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from llamea_gpu.frameworks.helion.kernel_script import KernelCase, find_script, load_case

ROOT = Path(__file__).resolve().parents[1]
RECORDED = (
    ("rope", "medium"),
    ("chunk_scan", "medium"),
    ("grouped_matmul", "medium"),
    ("fp8_matmul", "medium"),
)
COMPARED = (
    ("matmul", "medium"),
    ("attention", "medium"),
    ("layer_norm", "medium"),
    ("rope", "medium"),
    ("chunk_scan", "medium"),
    ("grouped_matmul", "medium"),
)
BASELINE = "helion:LFBOTreeSearch@full"
SEARCHERS = (
    BASELINE,
    "helion:LFBOTreeSearch@quick",
    "helion:PatternSearch@quick",
    "iterated_local_search@100",
    "differential_evolution@100",
)
STEPS = ("rate", "record", "compare")
ROUNDS = 15  # of measuring the results again, in turns
_START_S = 60.0  # that a search may take beyond its cap: starting, the reference, the end
_FINAL_S = 80.0  # for measuring the results again
_HEAD_START_MS = 20.0  # of the GPU's queue, when measuring them


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.summary:
        print(summary(options.out))
        return
    if options.kernel:
        compare_kernel(options)
        return
    if options.continue_from:
        for path in options.continue_from.iterdir():
            shutil.copyfile(path, options.out / path.name)
    steps: dict[str, Callable[[argparse.Namespace, float], None]] = {
        "rate": measure_rate,
        "record": record_all,
        "compare": compare_all,
    }
    end = monotonic() + options.seconds
    for name in options.steps:
        try:
            steps[name](options, end)
        except Exception:  # the others go on
            _log(options.out, f"{name} failed\n{traceback.format_exc()}")


def measure_rate(options: argparse.Namespace, end: float) -> None:
    """Step 1."""
    target = options.out / "rate.json"
    if target.exists() and "ratio" in json.loads(target.read_text()):
        return
    command = [sys.executable, str(ROOT / "scripts" / "bench_helion_recorder.py"), str(target)]
    command += ["--points", str(options.rate_points)]
    _log(options.out, f"rate: {_run(command, _left_s(end))[1]}")


def record_all(options: argparse.Namespace, end: float) -> None:
    """Step 2."""
    for kernel, shape in RECORDED:
        output = options.out / f"{kernel}-{shape}.parquet"
        whole = output.exists() and not output.with_name(output.name + ".journal").exists()
        seconds = min(options.record_seconds, _left_s(end) - 30)
        if whole or seconds < 40:
            continue
        command = [sys.executable, "-m", "llamea_gpu", "spaces", "record", "helion", kernel]
        command += ["--shape", shape, "--auto", str(options.points), "-o", str(output)]
        command += ["--seconds", f"{seconds:.0f}", "--partial"]
        _log(options.out, f"{kernel}: {_run(command, min(seconds + 60, _left_s(end)))[1]}")


def compare_all(options: argparse.Namespace, end: float) -> None:
    """Step 3: a process for each search, so that what one breaks is not the others' business."""
    for kernel, shape in COMPARED:
        if kernel not in options.kernels:
            continue
        if any(line["kernel"] == kernel for line in _lines(options.out / "final.jsonl")):
            continue
        for searcher in [*options.searchers, "final"]:
            if searcher != "final" and _searched(options.out, kernel, searcher):
                continue
            search_s = options.search_seconds
            if searcher == BASELINE:
                search_s = max(search_s, options.baseline_seconds)
            limit_s = _FINAL_S if searcher == "final" else search_s + _START_S
            if _left_s(end) < limit_s + 10:
                return
            command = [sys.executable, __file__, str(options.out), "--kernel", kernel]
            command += ["--shape", shape, "--searcher", searcher]
            command += ["--search-seconds", str(search_s)]
            command += ["--compile-timeout", str(options.compile_timeout)]
            with tempfile.TemporaryDirectory() as folder:
                _run_one(options.out, kernel, searcher, command, Path(folder), limit_s)


def _run_one(
    out: Path, kernel: str, searcher: str, command: list[str], folder: Path, limit_s: float
) -> None:
    caches = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    well, said = _run(command, limit_s, {name: str(folder / sub) for name, sub in caches.items()})
    if not well:
        _log(out, f"{kernel} {searcher}: {said}")
        if searcher != "final":
            _append(out / "searches.jsonl", {"kernel": kernel, "searcher": searcher, "failed": 1})


def _run(
    command: list[str], limit_s: float, environment: dict[str, str] | None = None
) -> tuple[bool, str]:
    """Run a program, at most for so long: whether all went well, and the end of what it wrote.

    What it started is ended with it: a process that hangs on the GPU would disturb the next.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(max(0.0, limit_s))
            said = f"exit status {code}" if code else ""
        except subprocess.TimeoutExpired:
            said = f"over {limit_s:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return not said, f"{said} {output.read()[-3000:]}".strip()


def compare_kernel(options: argparse.Namespace) -> None:
    """In the process of one search: run it; or measure the results of all of them again."""
    import torch

    with torch.device("cuda"):
        case = load_case(find_script(options.kernel), options.shape)
    case.kernel.settings.autotune_effort = _effort(options.searcher)
    case.kernel.settings.autotune_budget_seconds = int(options.search_seconds)
    case.kernel.settings.autotune_compile_timeout = options.compile_timeout
    case.kernel.settings.autotune_random_seed = 0
    case.kernel.settings.autotune_log_level = 30
    if options.searcher != "final":
        log = re.sub(r"\W+", "_", options.searcher)
        case.kernel.settings.autotune_log = str(options.out / f"{options.kernel}-{log}")
    bound = case.kernel.bind(case.arguments)
    if options.searcher == "final":
        found = measure_again(options.out, options.kernel, case, bound)
        _append(options.out / "final.jsonl", found)
        return
    search = make_search(options.searcher, bound, case)
    start = perf_counter()
    config = search.autotune(skip_cache=True)
    seconds = perf_counter() - start
    _append(
        options.out / "searches.jsonl",
        {
            "kernel": options.kernel,
            "shape": options.shape,
            "searcher": options.searcher,
            "seconds": seconds,
            "capped": seconds > 0.95 * options.search_seconds,
            "configurations": search._autotune_metrics.num_configs_tested,
            "config": dict(config.config),
        },
    )


def make_search(searcher: str, bound: Any, case: KernelCase) -> Any:
    """A Helion search object, with the settings of its effort as Helion itself gives them."""
    import inspect

    from helion.autotuner import search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile

    from llamea_gpu.live.helion.registration import search_class
    from llamea_gpu.searchers.registry import resolve_program

    name, _, budget = searcher.partition("@")
    if not name.startswith("helion:"):
        ours = search_class(resolve_program(name))
        return ours(bound, case.arguments, evaluations=int(budget) if budget else None)
    theirs = search_algorithms[name.removeprefix("helion:")]
    accepted = inspect.signature(theirs.__init__).parameters
    profile = get_effort_profile(budget)
    given = theirs.get_kwargs_from_profile(profile, bound.settings)
    return theirs(bound, case.arguments, **{k: v for k, v in given.items() if k in accepted})


def measure_again(out: Path, kernel: str, case: KernelCase, bound: Any) -> dict[str, Any]:
    """Times of all results, the default and the reference: medians over rounds in turns."""
    import helion

    from llamea_gpu.frameworks.helion.timing import time_call

    calls: dict[str, Callable[[], object]] = {}

    def add(name: str, config: Any) -> None:
        function = bound.compile_config(config)
        calls[name] = lambda: function(*case.arguments)

    add("default", bound.config_spec.default_config())
    calls["reference"] = lambda: case.reference(*case.arguments)
    for line in _lines(out / "searches.jsonl"):
        if line["kernel"] == kernel and "config" in line:
            add(line["searcher"], helion.Config(**line["config"]))
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(time_call(call, _HEAD_START_MS)["time_ms"])
    return {
        "kernel": kernel,
        "shape": case.shape,
        "time_ms": {name: statistics.median(values) for name, values in times.items()},
        "low_ms": {name: min(values) for name, values in times.items()},
        "high_ms": {name: max(values) for name, values in times.items()},
    }


def summary(out: Path) -> str:
    """The comparison as Markdown: by kernel and searcher, and geometric means."""
    finals = {line["kernel"]: line for line in _lines(out / "final.jsonl")}
    searches = {(s["kernel"], s["searcher"]): s for s in _lines(out / "searches.jsonl")}
    searchers = list(dict.fromkeys(searcher for _, searcher in searches))
    rows = ["| kernel | " + " | ".join(searchers) + " | default | reference |"]
    rows.append("| --- " * (len(searchers) + 3) + "|")
    for kernel, final in finals.items():
        cells = [f"{kernel} {final['shape']}"]
        for searcher in [*searchers, "default", "reference"]:
            time_ms = final["time_ms"].get(searcher)
            cell = "-" if time_ms is None else f"{time_ms:.4g} ms"
            search = searches.get((kernel, searcher), {})
            if "seconds" in search:
                capped = " (capped)" if search["capped"] else ""
                cell += f", {search['configurations']} in {search['seconds']:.0f} s{capped}"
            cells.append(cell)
        rows.append("| " + " | ".join(cells) + " |")
    rows += ["", f"| searcher | kernels | time / {BASELINE} | seconds | configurations |"]
    rows.append("| --- | --- | --- | --- | --- |")
    for searcher in searchers:
        both = [k for k, f in finals.items() if {searcher, BASELINE} <= set(f["time_ms"])]
        if not both:
            continue
        ratios = [finals[k]["time_ms"][searcher] / finals[k]["time_ms"][BASELINE] for k in both]
        spent = [
            _geometric_mean([searches[k, searcher][key] / searches[k, BASELINE][key] for k in both])
            for key in ("seconds", "configurations")
        ]
        means = f"{_geometric_mean(ratios):.4f} | {spent[0]:.3f} | {spent[1]:.3f}"
        rows.append(f"| {searcher} | {len(both)} | {means} |")
    return "\n".join(rows)


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _effort(searcher: str) -> Any:
    budget = searcher.partition("@")[2]
    return budget if budget in ("quick", "full") else "full"


def _searched(out: Path, kernel: str, searcher: str) -> bool:
    lines = _lines(out / "searches.jsonl")
    return any(line["kernel"] == kernel and line["searcher"] == searcher for line in lines)


def _left_s(end: float) -> float:
    return end - monotonic()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _log(out: Path, text: str) -> None:
    print(text, flush=True)
    with (out / "log.txt").open("a") as file:
        file.write(text + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for what is written")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--continue-from", type=Path, help="folder of an earlier call")
    parser.add_argument("--rate-points", type=int, default=768)
    parser.add_argument("--points", type=int, default=2000, help="most of a recording's grid")
    parser.add_argument("--record-seconds", type=float, default=180, help="a recording")
    parser.add_argument("--search-seconds", type=float, default=60, help="a search")
    parser.add_argument("--baseline-seconds", type=float, default=0, help="its search, if more")
    parser.add_argument(
        "--compile-timeout", type=int, default=15, help="seconds for one configuration, in a search"
    )
    parser.add_argument("--searchers", nargs="+", default=SEARCHERS)
    parser.add_argument("--kernels", nargs="+", default=[name for name, _ in COMPARED])
    parser.add_argument("--summary", action="store_true", help="print the comparison")
    parser.add_argument("--kernel", default="", help=argparse.SUPPRESS)
    parser.add_argument("--shape", default="medium", help=argparse.SUPPRESS)
    parser.add_argument("--searcher", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
