"""Live tuning side by side: searchers on Helion kernels, inside Helion and on the engine.

    scripts/bench_live.py -o FOLDER [--kernels K ...] [--arms ENGINE=SPEC ...] [--seeds N]
                          [--first-seed N] [--seconds S] [--deadline S] [--gpus N]
    scripts/bench_live.py -o FOLDER --summary

Each run is a process of its own with cold caches and its imports done. Its seconds begin when the
kernel is bound and its tuning starts. When all runs of a kernel are done, their winners are timed
head to head in interleaved passes, in one process, and beside them the best configurations of the
kernel's shipped cloud; the table is relative to the fastest of all of these, the best known, the
curves to the best reading of all runs of that kernel. With several GPUs as many runs go on at once,
each with its share of the cores, for Helion's own compiling processes too.

An arm's difference from another is the mean over kernels of the difference of mean log times; its
interval, of 95 %, is Student's with the variances of the runs of either on each kernel: seeds vary,
these kernels do not.

Everything goes to FOLDER as it comes: runs.jsonl, winners.jsonl, a journal for each run on the
engine (journals/KERNEL-ARM-SEED.jsonl; packed into journals.tar.gz when a kernel is done),
summary.txt. What is in runs.jsonl is not run again, so the same command goes on where one was
ended; with --first-seed it adds runs to those of another day, whose winners are timed again with
the new ones. No run is begun that would not be over by --deadline (seconds of this script); what
there is then is still timed head to head. Needs Helion and an NVIDIA GPU; --summary needs neither.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import re
import signal
import statistics
import sys
import tarfile
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.promotion.live import slower

KERNELS = ["attention", "chunk_scan", "rope", "grouped_matmul", "matmul", "layer_norm"]
ARMS = [
    "pipelined=improvement_by_instalments",
    "pipelined=steady_state_genetic_algorithm",
    "framework=helion:LFBOTreeSearch",
    "pipelined=helion:LFBOTreeSearch",
    "framework=helion:PatternSearch",
    "pipelined=growing_foresight",
    "pipelined=conditioned_local_search",
    "pipelined=main_effect_posterior",
]
MARKS_S = (5, 10, 15, 30, 45)
PASSES = 15
HEAD_START_MS = 20.0  # before each reading: others are busy on this machine
KNOWN = 3  # configurations of a cloud that are timed beside the winners
MOST_SPELLINGS = 40  # that are tried for one of them
UNUSED_BESIDE_DESCRIPTORS = ("range_unroll_factors", "range_num_stages")
START_S = 15.0  # of a run's process: loading, binding, ending
PATIENCE = 3.0  # times the seconds of a run, and of importing: then it hangs
IMPORT_S = 60.0
HEAD_TO_HEAD_S = 25.0  # kept for it by the deadline
_LEAVE_S = 5.0
_IMPORTED = (
    "torch",
    "triton",
    "helion",
    "llamea_gpu.live.helion.tuning",
    "llamea_gpu.live.searcher",
)
_PROCESSES = multiprocessing.get_context("forkserver")


def tune(kernel: str, arm: str, seed: int, seconds: float, journal: str | None) -> dict[str, Any]:
    """One run, in this process."""
    import torch

    import llamea_gpu.live.helion  # noqa: F401 - before anything asks for a GPU
    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.live.helion.registration import search_base
    from llamea_gpu.live.helion.tuning import tune_bound
    from llamea_gpu.live.result import TuneSettings
    from llamea_gpu.searchers.registry import ProgramSearcher, resolve

    engine, _, spec = arm.partition("=")
    search_base(engine)  # type: ignore[arg-type]
    searcher = resolve(spec)
    with torch.device("cuda"):
        case = load_case(find_script(kernel))
    settings = TuneSettings(
        seconds=seconds,
        seed=seed,
        shape=case.shape,
        engine=engine,  # type: ignore[arg-type]
        journal=Path(journal) if journal else None,
    )
    bound = case.kernel.bind(case.arguments)
    torch.cuda.synchronize()
    begin = monotonic()
    result = tune_bound(bound, case.arguments, spec, settings)
    return {
        "kernel": kernel,
        "arm": arm,
        "seed": seed,
        "seconds": seconds,
        "device": result.device,
        "framework": result.framework,
        "source_sha256": (
            hashlib.sha256(searcher.program.source.encode()).hexdigest()
            if isinstance(searcher, ProgramSearcher)
            else None
        ),
        "elapsed_s": round(result.elapsed_s, 2),
        "wall_s": round(monotonic() - begin, 2),
        "default_ms": result.default_ms,
        "best_ms": result.best.time_ms if result.best else None,
        "best": dict(result.best.configuration) if result.best else None,
        "trouble": result.trouble,
        "start_s": dict(result.start_s),
        "measured": [
            [round(each.elapsed_s, 2), each.time_ms if math.isfinite(each.time_ms) else None]
            for each in result.measured
        ],
    }


def head_to_head(
    kernel: str, configs: list[dict[str, Any]], shape: str | None = None
) -> tuple[list[float], list[float]]:
    """Median milliseconds of each configuration and of the best known, in interleaved passes."""
    import helion
    import torch

    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.frameworks.helion.stages import set_caches
    from llamea_gpu.frameworks.helion.timing import time_call

    with tempfile.TemporaryDirectory() as folder:
        with torch.device("cuda"):
            case = load_case(find_script(kernel), shape)
        bound = case.kernel.bind(case.arguments)
        known = best_known(kernel, case.shape, bound)
        different = {json.dumps(each, sort_keys=True): each for each in [*configs, *known]}
        compile_all(find_script(kernel), shape, list(different.values()), Path(folder))
        set_caches(Path(folder))
        functions = [bound.compile_config(helion.Config(**each)) for each in different.values()]
        times: list[list[float]] = [[] for _ in functions]
        for number in range(PASSES + 1):
            places = range(len(functions)) if number % 2 else reversed(range(len(functions)))
            for place in places:
                function = functions[place]
                reading = time_call(lambda f=function: f(*case.arguments), HEAD_START_MS)["time_ms"]
                if number:  # the first pass heats up
                    times[place].append(reading)
    medians = dict(zip(different, map(statistics.median, times), strict=True))
    ours, clouds = (
        [medians[json.dumps(config, sort_keys=True)] for config in each]
        for each in (configs, known)
    )
    return ours, clouds


def best_known(kernel: str, shape: str, bound: Any) -> list[dict[str, Any]]:
    """The best configurations of the kernel's clouds that ship and fit this Helion.

    Of each generated code one, in a spelling of which Helion makes that very code here.
    """
    import numpy as np

    from llamea_gpu.frameworks.helion.space import HelionSpace
    from llamea_gpu.spaces.catalogue import list_clouds, load_cloud

    generation = bound.config_spec.create_config_generation()
    seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
    space = HelionSpace(generation, np.random.default_rng(0), seeds)
    known: list[dict[str, Any]] = []
    for entry in list_clouds():
        cloud = load_cloud(entry.name)
        if (cloud.script, cloud.shape) != (Path(kernel).stem, shape):
            continue
        if (cloud.names, cloud.values) != (tuple(space.names), tuple(space.values)):
            print(f"{entry.name}: not the space of this kernel here, left out", file=sys.stderr)
            continue
        order = np.argsort(np.where(cloud.ok, cloud.times_ms, math.inf), kind="stable")
        found: dict[str, dict[str, Any] | None] = {}  # by code
        for row in order:
            if len(found) == 4 * KNOWN or len(found) - list(found.values()).count(None) == KNOWN:
                break
            source = str(cloud.source[row])
            if source not in found:
                config = dict(space.config(cloud.configuration(int(row))))
                found[source] = spelling(bound, config, source)
        if None in found.values():
            lost = list(found.values()).count(None)
            print(f"{entry.name}: {lost} of the best are other code here, left out", flush=True)
        known += [config for config in found.values() if config is not None]
    return known[:KNOWN]


def spelling(bound: Any, config: dict[str, Any], source: str) -> dict[str, Any] | None:
    """A configuration like ``config`` whose code has this key, or None.

    Clouds recorded before 2026-11-27 timed loads through pointers where their configurations say
    tensor descriptors: Helion was asked for code of tensors without an address.
    """
    from llamea_gpu.frameworks.helion.compiling import (
        ConfigurationRefusedError,
        generate,
        source_key,
    )

    places = [i for i, how in enumerate(config["indexing"]) if how == "tensor_descriptor"]
    some = itertools.chain.from_iterable(
        itertools.combinations(places, count) for count in range(len(places))
    )
    for kept in itertools.chain([tuple(places)], itertools.islice(some, MOST_SPELLINGS)):
        indexing = [
            "pointer" if i in places and i not in kept else how
            for i, how in enumerate(config["indexing"])
        ]
        # Beside descriptors made on the GPU Helion does without what these say.
        plain = {key: [0] * len(config[key]) for key in UNUSED_BESIDE_DESCRIPTORS if key in config}
        spelled = {**config, "indexing": indexing}
        for tried in [spelled, {**spelled, **plain}][: 1 + (spelled != {**spelled, **plain})]:
            with contextlib.suppress(ConfigurationRefusedError):
                if source_key(generate(bound, tried)) == source:
                    return tried
    return None


def compile_all(
    script: Path, shape: str | None, configs: Sequence[dict[str, Any]], folder: Path
) -> None:
    """Compile into Triton's cache in ``folder``, side by side; what fails is compiled later."""
    from llamea_gpu.engine.limits import Limits
    from llamea_gpu.engine.pipeline import Pipeline, Task
    from llamea_gpu.engine.template import ForkedTemplate
    from llamea_gpu.errors import LlameaGpuError
    from llamea_gpu.frameworks.helion.stages import CompileStage

    processes = max(1, min(len(configs), len(os.sched_getaffinity(0)) - 1))
    stages = [CompileStage(script, shape, folder)] * processes
    tasks = [Task(number, config) for number, config in enumerate(configs)]
    try:
        with (
            ForkedTemplate(folder / "template.log") as template,
            Pipeline(stages, [], folder, Limits(timing_s=60.0), template) as pipeline,
        ):
            for _ in pipeline.run(tasks, monotonic() + 120.0):
                pass
    except LlameaGpuError as error:
        print(f"compiling side by side: {error}", file=sys.stderr)


@dataclass(frozen=True)
class Place:
    """One GPU and its share of the cores; ``gpu`` is None where there is one and it has all."""

    gpu: int | None
    cores: frozenset[int]

    def environment(self) -> dict[str, str]:
        """Of a process that works here."""
        if self.gpu is None:
            return {}
        jobs = str(len(self.cores))  # Helion counts the machine's
        return {"CUDA_VISIBLE_DEVICES": str(self.gpu), "HELION_AUTOTUNE_PRECOMPILE_JOBS": jobs}


def places(gpus: int) -> list[Place]:
    """Where runs go on at once."""
    cores = sorted(os.sched_getaffinity(0))
    if gpus == 1:
        return [Place(None, frozenset(cores))]
    share = len(cores) // gpus
    return [Place(i, frozenset(cores[i * share : (i + 1) * share])) for i in range(gpus)]


def child(job: dict[str, Any], limit_s: float, place: Place) -> Any:
    """The result of one job, from a process with cold caches; None when it failed.

    The process is a fork of one that has imported everything and touched no GPU, as that of a user
    who tunes has: importing takes longer than many a search.
    """
    with tempfile.TemporaryDirectory() as cold:
        folders = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TMPDIR")
        environment = dict.fromkeys(folders, cold)
        log = Path(cold) / "log"
        ours, theirs = _PROCESSES.Pipe(duplex=False)
        process = _PROCESSES.Process(
            target=work,
            args=(job, {**environment, **place.environment()}, sorted(place.cores), log, theirs),
        )
        process.start()
        theirs.close()
        found, how = None, "hung"
        if ours.poll(limit_s):
            with contextlib.suppress(EOFError):
                found = ours.recv()
            how = "failed"
        process.join(_LEAVE_S if found is not None else 0.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
        process.join()
        said = log.read_text(errors="replace") if log.exists() else ""
    if found is None:
        print(f"{job} {how}: {said[-800:]}", flush=True)
    elif "own way" in said:
        print(said[-500:], flush=True)
    return found


def work(
    job: dict[str, Any], environment: dict[str, str], cores: list[int], log: Path, answer: Any
) -> None:
    """A process's whole life."""
    os.setsid()
    os.environ.update(environment)
    tempfile.tempdir = None  # to be looked up again
    os.sched_setaffinity(0, cores)
    with log.open("wb") as output:
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
    do = job.pop("do")
    answer.send(do(**job))


# -- what there is ------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; one that was cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            print(f"{path}: a line was cut short", flush=True)
    return found


def add_line(path: Path, line: dict[str, Any]) -> None:
    """Append a JSON line; what was cut short before is ended first."""
    with path.open("a+b") as file:
        if file.tell() and path.read_bytes()[-1:] != b"\n":
            file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")


def journal_of(folder: Path, kernel: str, arm: str, seed: int) -> str | None:
    """Where a run on the engine keeps its journal."""
    if not arm.startswith("pipelined="):
        return None
    name = re.sub(r"\W+", "_", arm.partition("=")[2]).strip("_")
    return str(folder / "journals" / f"{kernel}-{name}-{seed}.jsonl")


def pack(folder: Path, kernel: str) -> None:
    """Move a kernel's journals into the one archive."""
    loose = sorted((folder / "journals").glob(f"{kernel}-*.jsonl"))
    if not loose:
        return
    packed, draft = folder / "journals.tar.gz", folder / "journals.draft"
    with tarfile.open(draft, "w:gz") as archive:
        if packed.exists():
            with tarfile.open(packed) as old:
                for member in old.getmembers():
                    if member.name not in {f"journals/{path.name}" for path in loose}:
                        archive.addfile(member, old.extractfile(member))
        for path in loose:
            archive.add(path, f"journals/{path.name}")
    draft.replace(packed)
    for path in loose:
        path.unlink()


# -- what it says -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """What was timed head to head on one kernel: its runs' winners, and what its cloud knew."""

    winners_ms: list[float]
    known_ms: list[float]

    @property
    def best_ms(self) -> float:
        """The best known."""
        return min([*self.winners_ms, *self.known_ms], default=math.nan)


def best_at(run: dict[str, Any], seconds: float) -> float:
    """The best time known after so many seconds, by the run's own readings."""
    return min((t for s, t in run["measured"] if t is not None and s <= seconds), default=math.inf)


def rate(run: dict[str, Any]) -> float:
    """Configurations a second, until the last one was known."""
    last_s = max((s for s, _ in run["measured"]), default=0.0)
    return len(run["measured"]) / last_s if last_s else 0.0


def table(kernel: str, runs: list[dict[str, Any]], times: Times) -> str:
    """One kernel's runs: curves relative to the best reading, winners to the best known."""
    winners_ms, best_ms = times.winners_ms, times.best_ms
    read_ms = min((best_at(run, math.inf) for run in runs), default=math.nan)
    default_ms = next((run["default_ms"] for run in runs if run["default_ms"]), math.nan)
    known = f", of its cloud {min(times.known_ms):.5f} ms" if times.known_ms else ""
    lines = [f"{kernel}: best {best_ms:.5f} ms{known}, default {default_ms:.5f} ms"]
    for run, time_ms in zip(runs, winners_ms, strict=True):
        curve = " ".join(f"{best_at(run, mark) / read_ms:6.3f}" for mark in MARKS_S)
        worked = sorted(s for s, t in run["measured"] if t is not None)
        first, second = [*worked, math.nan, math.nan][:2]
        lines.append(
            f"  {run['arm']:42} seed {run['seed']}: {curve} | {time_ms / best_ms:.4f}"
            f" | {len(run['measured'])} in {run['elapsed_s']:.1f} s, {rate(run):.2f}/s"
            f", first {first:.1f} s, second {second:.1f} s"
        )
        if run.get("start_s"):
            steps = ", ".join(f"{name} {s:.2f}" for name, s in run["start_s"].items())
            lines.append(f"      start: {steps}")
    return "\n".join(lines)


def finished(folder: Path) -> dict[str, tuple[list[dict[str, Any]], Times]]:
    """Runs and times, of kernels whose winners were timed, by kernel."""
    runs = {(r["kernel"], r["arm"], r["seed"]): r for r in lines_of(folder / "runs.jsonl")}
    found = {}
    for line in lines_of(folder / "winners.jsonl"):  # the last one of a kernel holds
        of_kernel = [runs[line["kernel"], arm, seed] for arm, seed in line["runs"]]
        found[line["kernel"]] = (of_kernel, Times(line["winners_ms"], line.get("known_ms", [])))
    return found


def summary(folder: Path) -> str:
    """Over kernels and seeds: each arm's winners, curves and rates; mean and worst."""
    finals: dict[str, list[float]] = defaultdict(list)
    curves: dict[tuple[str, float], list[float]] = defaultdict(list)
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    elapsed: dict[str, list[float]] = defaultdict(list)
    kernels = finished(folder)
    for kernel, (runs, times) in kernels.items():
        read_ms = min(best_at(run, math.inf) for run in runs)
        for run, time_ms in zip(runs, times.winners_ms, strict=True):
            arm = run["arm"]
            finals[arm].append(time_ms / times.best_ms)
            rates[arm, kernel].append(rate(run))
            elapsed[arm].append(run["elapsed_s"])
            for mark in MARKS_S:
                curves[arm, mark].append(best_at(run, mark) / read_ms)
    lines = [f"{len(kernels)} kernels: {', '.join(kernels)}"]
    lines.append("mean / worst of winners (head to head), of best so far, seconds that a run took")
    for arm in sorted(finals, key=lambda arm: statistics.mean(finals[arm])):
        marks = "  ".join(f"{mark} s {mean_and_worst(curves[arm, mark])}" for mark in MARKS_S)
        lines.append(
            f"  {arm:42} {len(finals[arm]):2} runs: {mean_and_worst(finals[arm])} |  {marks}"
            f" | {statistics.mean(elapsed[arm]):.1f} / {max(elapsed[arm]):.1f} s"
        )
    nothing = [r for r in lines_of(folder / "runs.jsonl") if not r["best"]]
    lines += [f"  nothing worked: {r['kernel']} {r['arm']} seed {r['seed']}" for r in nothing]
    lines.append("configurations a second (median run of each kernel)")
    for arm in finals:
        cells = [
            f"{kernel} {statistics.median(rates[arm, kernel]):.2f}"
            for kernel in kernels
            if (arm, kernel) in rates
        ]
        lines.append(f"  {arm:42} {', '.join(cells)}")
    return "\n".join([*lines, *rate_ratios(rates, list(kernels)), *differences(folder)])


def differences(folder: Path) -> Iterable[str]:
    """Each arm's winners, and its best so far on the way, against the best arm's, in percent."""
    logs: dict[str, dict[str, dict[str, list[float]]]] = {}  # by moment, arm, kernel
    for kernel, (runs, times) in finished(folder).items():
        for run, time_ms in zip(runs, times.winners_ms, strict=True):
            moments = {f"after {mark} s": best_at(run, mark) for mark in MARKS_S[:-1]}
            for moment, reached_ms in {"winners": time_ms, **moments}.items():
                of_arm = logs.setdefault(moment, {}).setdefault(run["arm"], {})
                of_arm.setdefault(kernel, []).append(math.log(reached_ms))
    if not logs:
        return
    first, *others = sorted(logs["winners"], key=lambda arm: mean_of_means(logs["winners"][arm]))
    for moment, of_arms in logs.items():
        cells = [
            f"{arm} {said}"
            for arm in others
            if (said := difference(of_arms[first], of_arms[arm])) is not None
        ]
        if cells:
            yield f"{moment}, slower than {first} [95 %]: {', '.join(cells)}"


def mean_of_means(of_kernels: dict[str, list[float]]) -> float:
    return statistics.mean(map(statistics.mean, of_kernels.values()))


def difference(first: dict[str, list[float]], other: dict[str, list[float]]) -> str | None:
    """By how much ``other`` is slower, on the kernels that both have, two runs or more each."""
    found = slower(first, other)
    if found is None:
        return None
    low, high = found.interval.low, found.interval.high
    return f"{found.percent:+.1f} [{low:+.1f}, {high:+.1f}] ({found.kernels} kernels)"


def mean_and_worst(ratios: list[float]) -> str:
    """inf where a run had nothing yet."""
    return f"{statistics.mean(ratios):.3f} / {max(ratios):.3f}"


def rate_ratios(rates: dict[tuple[str, str], list[float]], kernels: list[str]) -> Iterable[str]:
    """The same searcher on the engine and in Helion's batches: the ratio of their rates."""
    for arm in sorted({arm for arm, _ in rates}):
        engine, _, spec = arm.partition("=")
        other = f"framework={spec}"
        both = [k for k in kernels if (arm, k) in rates and (other, k) in rates]
        if engine == "framework" or not both:
            continue
        ratios = [
            statistics.median(rates[arm, k]) / max(statistics.median(rates[other, k]), 1e-9)
            for k in both
        ]
        cells = ", ".join(f"{k} {r:.2f}" for k, r in zip(both, ratios, strict=True))
        geometric = statistics.geometric_mean(ratios)
        yield f"rate of {arm} to {other}: {geometric:.2f} ({cells})"


# -- running ------------------------------------------------------------------------------------


class Bench:
    """The runs that are not there yet, handed out to the places, and the winners of kernels.

    ``until`` is of ``time.monotonic``.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder: Path = arguments.output
        self.seconds: float = arguments.seconds
        self.until = monotonic() + arguments.deadline
        (self.folder / "journals").mkdir(parents=True, exist_ok=True)
        known = {(r["kernel"], r["arm"], r["seed"]) for r in lines_of(self.folder / "runs.jsonl")}
        self.runs = [
            key
            for kernel in arguments.kernels
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
            for arm in arguments.arms
            if (key := (kernel, arm, seed)) not in known
        ]
        self.winners = list(arguments.kernels)
        self.busy: list[str] = []  # kernels of the runs that are under way
        self.changed = threading.Condition()

    def work(self, place: Place) -> None:
        """What one place does until nothing is left."""
        while (job := self.next_job()) is not None:
            kernel, arm, seed = job
            try:
                if arm:
                    self.run(kernel, arm, seed, place)
                else:
                    self.time_winners(kernel, place)
            finally:
                with self.changed:
                    self.busy.remove(kernel)
                    self.changed.notify_all()

    def next_job(self) -> tuple[str, str, int] | None:
        """A run; or a kernel, without arm, whose winners are to be timed; or None at the end."""
        with self.changed:
            while True:
                if monotonic() + self.seconds + START_S + HEAD_TO_HEAD_S > self.until:
                    self.runs.clear()
                open_kernels = {kernel for kernel, _, _ in self.runs} | set(self.busy)
                ready = next((k for k in self.winners if k not in open_kernels), None)
                if ready is not None:
                    self.winners.remove(ready)
                    self.busy.append(ready)
                    return ready, "", 0
                if self.runs:
                    job = self.runs.pop(0)
                    self.busy.append(job[0])
                    return job
                if not self.busy:
                    return None
                self.changed.wait()

    def run(self, kernel: str, arm: str, seed: int, place: Place) -> None:
        """One run; a journal of one that was killed is left out, to begin like the others."""
        journal = journal_of(self.folder, kernel, arm, seed)
        if journal:
            Path(journal).unlink(missing_ok=True)
        job = {"do": tune, "kernel": kernel, "arm": arm, "seed": seed}
        job |= {"seconds": self.seconds, "journal": journal}
        if found := child(job, PATIENCE * self.seconds + IMPORT_S, place):
            with self.changed:
                add_line(self.folder / "runs.jsonl", found)

    def time_winners(self, kernel: str, place: Place) -> None:
        """Time a kernel's winners, unless those very ones have been timed; pack and print."""
        runs = [r for r in lines_of(self.folder / "runs.jsonl") if r["kernel"] == kernel]
        runs = [run for run in runs if run["best"]]
        keys = [[run["arm"], run["seed"]] for run in runs]
        timed = [(x["kernel"], x["runs"]) for x in lines_of(self.folder / "winners.jsonl")]
        found = None
        if runs and (kernel, keys) not in timed:
            configs = [run["best"] for run in runs]
            job = {"do": head_to_head, "kernel": kernel, "configs": configs}
            found = child(job, 5 * HEAD_TO_HEAD_S, place)
        with self.changed:
            pack(self.folder, kernel)
            if found:
                times = Times(*found)
                line = {"kernel": kernel, "runs": keys, **asdict(times)}
                add_line(self.folder / "winners.jsonl", line)
                print(table(kernel, runs, times), flush=True)
            (self.folder / "summary.txt").write_text(report(self.folder))


def bench(arguments: argparse.Namespace) -> None:
    """All runs that are not there yet, as far as the deadline allows."""
    running = Bench(arguments)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # importing is to initialise no GPU
    _PROCESSES.set_forkserver_preload([*_IMPORTED])
    threads = [
        threading.Thread(target=running.work, args=(place,)) for place in places(arguments.gpus)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(summary(arguments.output), flush=True)


def report(folder: Path) -> str:
    """All tables, then the summary."""
    tables = [table(kernel, *found) for kernel, found in finished(folder).items()]
    return "\n\n".join([*tables, summary(folder)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--kernels", nargs="*", default=KERNELS)
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--deadline", type=float, default=math.inf)
    parser.add_argument("--gpus", type=int, default=1, help="how many to use at once")
    parser.add_argument("--summary", action="store_true", help="of what there is; run nothing")
    arguments = parser.parse_args()
    if arguments.output is None:
        parser.error("-o FOLDER says where everything goes")
    elif arguments.summary:
        print(report(arguments.output))
    else:
        bench(arguments)


if __name__ == "__main__":
    main()
