#!/usr/bin/env python3
"""A cluster's real GPUs on one host: live tuning on one and on all, a lost node, and a cloud.

    scripts/bench_cluster_gpus.py -o FOLDER [--kernel chunk_scan] [--seconds 30] [--gpus 4]
                                  [--steps one cloud all killed] [--apart] [--pretend]

Ray nodes are started on this host, each with GPUs and cores of its own; the driver sees no GPU.

  one     a kernel is tuned on a node of one GPU
  cloud   a cloud of it is measured on two nodes (`spaces record helion --whole`)
  all     it is tuned on two nodes with half of the GPUs each
  killed  the same for two thirds of the seconds; at a random moment the raylet of the second node
          is killed

`one` has the first GPU while `cloud` has the others, each with cores of its own; with --apart they
go on one after the other, and `cloud` has all GPUs. All GPUs have equally many cores, in each step.

FOLDER gets results.jsonl, a line a step as it ends; outcomes.jsonl, a line for all that happens to
a configuration; and a log of each step. A step that is not over in its seconds and --slack more is
killed with all that it started, and the next begins. With --pretend, which needs the repository's
tests, there are no GPUs, and compiling and timing are formulas: that tries the script itself.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

SEARCHER = "steady_state_genetic_algorithm"
STEPS = ("one", "cloud", "all", "killed")
KIND = "H200"  # what is pretended
ENOUGH = 100_000  # measurements of a cloud that is ended by time
_MARK = "LLAMEA_GPU_BENCH_STEP"  # in the environment of all that a step starts
_DRIVER_CORES = 4
_OBJECT_STORE = 200 << 20
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # memory of a virtual machine may grow as it is used
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",  # a container's /dev/shm may be small
    "RAY_prestart_worker_first_driver": "0",  # else a Python process for each core begins as well
    "PYTHONUNBUFFERED": "1",
}

Row = dict[str, Any]


# -- one step, in a process of its own ----------------------------------------------------------


class Trail:
    """What happens, as it happens, in seconds since the step began."""

    def __init__(self, folder: Path, step: str) -> None:
        self._file = (folder / "outcomes.jsonl").open("a", encoding="utf-8")
        self._step, self._lock, self._began = step, threading.Lock(), time.monotonic()
        self.events: list[Row] = []

    def note(self, event: str, **what: Any) -> float:
        """Returns when it is."""
        now = round(time.monotonic() - self._began, 3)
        with self._lock:
            self.events.append({"t": now, "event": event, **what})
            line = {"step": self._step, **self.events[-1]}
            self._file.write(json.dumps(line, default=str) + "\n")
            self._file.flush()
        return now

    def at(self, event: str) -> list[float]:
        """When it happened."""
        return [line["t"] for line in self.events if line["event"] == event]

    def points(self, event: str) -> list[int]:
        """Of what configurations."""
        return [p for line in self.events if line["event"] == event for p in line["points"]]


def watched(trail: Trail) -> type:  # noqa: C901 - a class of short methods
    """A `ClusterPipeline` that leaves a trail."""
    from llamea_gpu.cluster.pipeline import ClusterPipeline

    class Watched(ClusterPipeline):
        def __init__(self, *arguments: Any) -> None:
            trail.note("engines asked for", what=repr(arguments[1:]))
            super().__init__(*arguments)

        def facts(self) -> list[Mapping[str, Any]]:
            found = super().facts()
            if not trail.at("engines ready"):
                engines = [_described(e.opened) for e in self._engines if e.opened]
                trail.note("engines ready", engines=engines)
            if not self.pending:  # what Ray gave each, which is to be a GPU of its own
                seen = [e.actor.do.remote(_visible) for e in self._engines if not e.opening]
                found_gpus = [done.result for done in self._ray.get(seen, timeout=20)]
                trail.note("visible to the engines", gpus=found_gpus)
            return found

        def submit(self, tasks: Iterable[Any]) -> None:
            tasks = list(tasks)
            trail.note("submitted", points=[task.point for task in tasks])
            super().submit(tasks)

        def wait(self, deadline: float | None = None) -> list[Any]:
            found = super().wait(deadline)
            for outcome in found:
                said = str(outcome.details.get("message", ""))[:200]
                trail.note(
                    "outcome",
                    points=[outcome.point],
                    status=outcome.status,
                    time_ms=outcome.details.get("time_ms"),
                    **({"message": said} if said else {}),
                )
            return found

        def on_one(self, work: Callable[..., Any], limit_s: float) -> Any:
            trail.note("finalists begin")
            found = super().on_one(work, limit_s)
            trail.note("finalists end", worked=found is not None)
            return found

        def _without_tasks(self, call: Callable[[Any], Any]) -> list[int]:
            dropped = super()._without_tasks(call)
            done = [outcome.point for outcome in self._finished]  # nobody asks for it any more
            trail.note("dropped", points=[*dropped, *done])
            return dropped

        def _lose(self, engine: Any, error: Exception) -> None:
            trail.note("engine lost", points=list(engine.tasks), why=str(error)[-300:])
            super()._lose(engine, error)

        def _note_open(self, engine: Any, opened: Any) -> None:
            super()._note_open(engine, opened)
            trail.note("engine open", engine=_described(opened))

        def _dismiss(self, engine: Any, why: str) -> None:
            trail.note("engine dismissed", why=why)
            super()._dismiss(engine, why)

    return Watched


def _visible(_: Any) -> str:
    """Called in an engine."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all")


def _described(opened: Any) -> Row:
    facts = {k: v for k, v in opened.facts.items() if isinstance(v, str | int | float | dict)}
    return {"node": opened.where.node[:8], "gpu": opened.where.facts.get("GPU"), **facts}


class Nodes:
    """Ray nodes on this host; ``gpus`` are the numbers of each one's."""

    def __init__(
        self, gpus: Sequence[Sequence[str]], cores: Sequence[Sequence[int]], pretended: bool
    ) -> None:
        from ray.cluster_utils import Cluster

        self._temporary = tempfile.mkdtemp(prefix="lgr-", dir="/tmp")  # short: sockets
        self._pretended = pretended
        Path("/tmp/ray").mkdir(exist_ok=True)  # Ray notes its address there
        self._cluster = Cluster()
        for place, (own, on) in enumerate(zip(gpus, cores, strict=True)):
            head = {"_temp_dir": self._temporary} if place == 0 else {}
            self._add(own, on, head)
        self.address: str = self._cluster.address

    def _add(self, gpus: Sequence[str], cores: Sequence[int], others: Row) -> None:
        before, seen = os.sched_getaffinity(0), os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            os.sched_setaffinity(0, cores)
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
            if "_temp_dir" in others:
                others = {"temp_dir": others["_temp_dir"]}
            if self._pretended:
                others["resources"] = {f"accelerator_type:{KIND}": len(gpus)}
            path = [str(p) for p in (*sys.path, os.environ.get("PYTHONPATH", "")) if p]
            self._cluster.add_node(
                num_cpus=len(cores),
                num_gpus=len(gpus),
                object_store_memory=_OBJECT_STORE,
                include_dashboard=False,
                env_vars={"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
                **others,
            )
        finally:
            os.sched_setaffinity(0, before)
            if seen is None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = seen

    def kill_last(self) -> str:
        """Its raylet, without a word; Ray's processes of the node end as they notice."""
        (node,) = list(self._cluster.worker_nodes)[-1:]
        (raylet,) = node.all_processes["raylet"]
        raylet.process.kill()
        raylet.process.wait()
        return str(node.node_id)[:8]

    def logs(self) -> str:
        """Ends of what Ray's processes said."""
        found = []
        for path in sorted(Path(self._temporary).glob("session_*/logs/*")):
            if path.is_file() and path.suffix in (".err", ".out") and path.stat().st_size:
                found.append(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}")
        return "\n".join(found)[-60_000:]

    def shutdown(self) -> None:
        with contextlib.suppress(Exception):
            self._cluster.shutdown()
        shutil.rmtree(self._temporary, ignore_errors=True)


def run_step(arguments: argparse.Namespace) -> None:
    """One step: import, wait for a line on standard input, and do it."""
    with contextlib.ExitStack() as stack:
        script = prepared(arguments, stack)
        print("ready", flush=True)
        sys.stdin.readline()
        trail = Trail(arguments.output, arguments.step)
        row: Row = {"what": arguments.step, "kernel": script.stem, "gpus": arguments.own_gpus}
        nodes = None
        try:
            layout = [group.split(",") for group in arguments.own_gpus]
            cores = [list(map(int, group.split(","))) for group in arguments.own_cores]
            nodes = Nodes(layout, cores, arguments.pretend)
            trail.note("nodes there", gpus=layout, cores=[len(each) for each in cores])
            do = cloud if arguments.step == "cloud" else tune
            row |= do(script, nodes, trail, arguments)
        except BaseException as error:
            traceback.print_exc()
            row["failed"] = f"{type(error).__name__}: {error}"[:2000]
            print(nodes.logs() if nodes else "", flush=True)
        row["ended_at_s"] = trail.note("end")
        add_line(arguments.output, row)
        if nodes:
            import ray

            ray.shutdown()
            nodes.shutdown()


def prepared(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Path:
    """Imports done; with pretended GPUs, formulas in the place of what needs some."""
    import ray  # noqa: F401

    import llamea_gpu.live.helion.tuning
    import llamea_gpu.recording.helion.cloud  # noqa: F401
    from llamea_gpu.frameworks.helion.kernel_script import find_script

    if arguments.pretend:
        stack.enter_context(pretended_gpus(arguments.output))
    return find_script(arguments.kernel)


@contextlib.contextmanager
def pretended_gpus(folder: Path) -> Iterator[None]:
    """Formulas in the place of compiling and timing, here and on the nodes."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import pytest
    from support.one_machine import measure_by_formula
    from support.recorder_stages import fake_stages_on_node

    from llamea_gpu.cluster.engine import EngineSpec
    from llamea_gpu.frameworks.helion.static import GPUS
    from llamea_gpu.recording.helion import cloud as of_cloud

    def unheld(build: Any, limits: Any, _preload: Any, **others: Any) -> Any:
        del others["exclusive"]  # no GPU to hold
        return EngineSpec(build, limits, **others)

    with pytest.MonkeyPatch.context() as patch:
        measure_by_formula(patch, folder, slow_s=0.1)
        patch.setattr(of_cloud, "run_on", lambda gpus, *_: GPUS[gpus.kind])
        patch.setattr(of_cloud, "EngineSpec", unheld)
        patch.setattr(of_cloud, "stages_on_node", partial(fake_stages_on_node, folder, 0.1))
        yield


def tune(script: Path, nodes: Nodes, trail: Trail, arguments: argparse.Namespace) -> Row:
    from llamea_gpu.live import TuneProgress, TuneSettings
    from llamea_gpu.live.helion import cluster
    from llamea_gpu.live.helion.tuning import tune_helion_script

    cluster.ClusterPipeline = watched(trail)  # type: ignore[misc]
    killing = arguments.step == "killed"
    seconds = arguments.seconds * (2 / 3 if killing else 1)
    moment = random.uniform(0.15, 0.35) * seconds
    stop = threading.Event()

    def beside() -> None:
        """Kills the node, and looks at who uses which GPU."""
        while not stop.is_set() and not trail.at("submitted"):
            stop.wait(0.1)
        looks = [moment] if killing else [seconds / 2]
        if stop.wait(looks[0]):
            return
        trail.note("gpus in use", **gpus_in_use())
        if killing:
            trail.note("node killed", node=nodes.kill_last())
            if not stop.wait(seconds / 4):
                trail.note("gpus in use", **gpus_in_use())

    thread = threading.Thread(target=beside, daemon=True)
    thread.start()

    def note(progress: TuneProgress) -> None:
        trail.note("told", measured=progress.measured, best_ms=_finite(progress.best_ms))

    settings = TuneSettings(
        seconds=seconds, seed=arguments.seed, shape=arguments.shape, cluster=nodes.address
    )
    result = tune_helion_script(script, SEARCHER, settings, note)
    stop.set()
    best = result.best
    known = [each.elapsed_s for each in result.measured]
    return {
        "seconds": seconds,
        "searcher": SEARCHER,
        "device": result.device,
        "framework": result.framework,
        "best_ms": best.time_ms if best else None,
        "best": dict(best.configuration) if best else None,
        "default_ms": result.default_ms,
        "measured": len(result.measured),
        "failed_configurations": sum(math.isinf(each.time_ms) for each in result.measured),
        "per_s": len(known) / max(known) if known and max(known) else 0.0,
        "elapsed_s": result.elapsed_s,
        "trouble": result.trouble,
        "start_s": dict(result.start_s),
        **kept(trail),
    }


def kept(trail: Trail) -> Row:
    """What became of what was handed out, and the pauses."""
    submitted, done = trail.points("submitted"), trail.points("outcome")
    dropped = trail.points("dropped")
    lost = sorted(set(submitted) - set(done) - set(dropped))
    if not dropped:  # a cloud is left where it is
        lost, dropped = [], lost
    given_up = [
        line
        for line in trail.events
        if line["event"] == "outcome" and "the engine was lost" in line.get("message", "")
    ]
    times = trail.at("outcome")
    row: Row = {
        "handed_out": len(submitted),
        "results": len(done),
        "ended_by_time": len(set(dropped) - set(done)),
        "lost": len(lost) + len(given_up),
        "twice": len(done) - len(set(done)),
        "longest_pause_s": round(longest(times), 3),
    }
    for event in ("nodes there", "engines asked for", "engines ready", "finalists begin"):
        row[f"at {event}"] = next(iter(trail.at(event)), None)
    row["at first result"] = times[0] if times else None
    killed = next(iter(trail.at("node killed")), None)
    if killed is None:
        return row
    on_lost = set(trail.points("engine lost"))
    again = [
        line["t"] - killed
        for line in trail.events
        if line["event"] == "outcome" and line["t"] > killed and line["points"][0] in on_lost
    ]
    ended = next(iter(trail.at("finalists begin")), times[-1] if times else killed)
    before, after = [t for t in times if t <= killed], [t for t in times if killed < t <= ended]
    return row | {
        "killed_at_s": killed,
        "noticed_after_s": [round(t - killed, 2) for t in trail.at("engine lost")],
        "on_lost_node": len(on_lost),
        "measured_elsewhere_after_s": [round(t, 2) for t in sorted(again)],
        "longest_pause_before_s": round(longest(before), 3),
        "longest_pause_after_s": round(longest([killed, *after]), 3),
        "per_s_before": round(len(before) / (killed - before[0]), 2) if len(before) > 1 else None,
        "per_s_after": round(len(after) / (ended - killed), 2) if after else 0.0,
    }


def longest(times: Sequence[float]) -> float:
    return max((b - a for a, b in pairwise(times)), default=math.nan)


def cloud(script: Path, nodes: Nodes, trail: Trail, arguments: argparse.Namespace) -> Row:
    from llamea_gpu.recording._base import HelionSettings, RecordProgress
    from llamea_gpu.recording.clouds import MixtureSettings
    from llamea_gpu.recording.helion import cloud as of_cloud
    from llamea_gpu.spaces.catalogue import load_cloud

    of_cloud.ClusterPipeline = watched(trail)  # type: ignore[misc]
    output = arguments.output / f"{script.stem}.cloud.parquet"

    began = math.inf

    def note(_: RecordProgress) -> None:
        nonlocal began
        began = min(began, time.monotonic())
        if time.monotonic() - began > arguments.seconds:
            raise KeyboardInterrupt  # as the user ends it

    how = HelionSettings(
        **of_cloud.TIMEOUTS_S,
        shape=arguments.shape,
        cluster=nodes.address,
        seconds=arguments.seconds + arguments.slack,
    )
    outcome = of_cloud.record_cloud(script, output, MixtureSettings(ENOUGH), how, note)
    found = load_cloud(str(output))
    return {
        "seconds": arguments.seconds,
        "measurements": len(found),
        "worked": int(found.ok.sum()),
        "best_ms": float(found.times_ms[found.ok].min()) if found.ok.any() else None,
        "per_s": outcome.measured / outcome.measured_s if outcome.measured_s else 0.0,
        "device": found.info.device,
        "provenance": dict(found.info.provenance),
        "trouble": str(outcome.troubles) if getattr(outcome, "troubles", None) else "",
        "bytes": output.stat().st_size,
        **kept(trail),
        "not_in_file": len(set(trail.points("outcome"))) - len(found),
    }


def gpus_in_use() -> Row:
    """Of each GPU: utilization in percent, MiB in use, processes that have it."""
    if shutil.which("nvidia-smi") is None:
        return {}
    queries = {
        "gpus": "--query-gpu=index,uuid,utilization.gpu,memory.used,clocks.current.sm",
        "processes": "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
    }
    found: Row = {}
    for name, query in queries.items():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
            found[name] = done.stdout.strip().splitlines()
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- all steps ----------------------------------------------------------------------------------


def add_line(folder: Path, row: Row) -> None:
    """Append it to the results, and print it."""
    text = json.dumps(row, default=str)
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(text + "\n")
    print(text[:1500], flush=True)


def shares(gpus: Sequence[str]) -> tuple[dict[str, list[int]], list[int]]:
    """Equally many cores for each GPU, and those that are left, the drivers'."""
    cores = sorted(os.sched_getaffinity(0))
    own = (len(cores) - _DRIVER_CORES) // len(gpus)
    if own < 2:  # too few to share out
        return dict.fromkeys(gpus, cores), cores
    of = {gpu: cores[n * own : (n + 1) * own] for n, gpu in enumerate(gpus)}
    return of, cores[len(gpus) * own :]


def rounds_of(arguments: argparse.Namespace, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """Steps that go on at once, and each one's GPUs by node."""
    middle = (len(gpus) + 1) // 2
    halves = [list(gpus[:middle]), list(gpus[middle:])]
    rest = [list(gpus[1:middle]), list(gpus[middle:])]
    asked = set(arguments.steps)
    found: list[dict[str, Any]] = []
    if {"one", "cloud"} <= asked and all(rest) and not arguments.apart:
        found.append({"one": [[gpus[0]]], "cloud": rest})
        asked -= {"one", "cloud"}
    layouts = {"one": [[gpus[0]]], "cloud": halves, "all": halves, "killed": halves}
    return found + [{step: layouts[step]} for step in STEPS if step in asked]


class Step:
    """The process of one step, in which imports go on from the start."""

    def __init__(self, name: str, layout: Sequence[Sequence[str]], arguments: Any) -> None:
        self.name, self.mark = name, f"{name}-{os.getpid()}-{time.time_ns()}"
        of, drivers = shares(arguments.gpu_names)
        cores = [sorted({core for gpu in node for core in of[gpu]}) for node in layout]
        command = [sys.executable, __file__, "-o", str(arguments.output), "--step", name]
        command += ["--kernel", arguments.kernel, "--seconds", str(arguments.seconds)]
        command += ["--slack", str(arguments.slack), "--seed", str(arguments.seed)]
        command += ["--own-gpus", *(",".join(node) for node in layout)]
        command += ["--own-cores", *(",".join(map(str, each)) for each in cores)]
        command += ["--shape", arguments.shape] if arguments.shape else []
        command += ["--pretend"] if arguments.pretend else []
        # The driver is to need no GPU: nodes get theirs as they are started.
        environment = {**os.environ, **_ENVIRONMENT, _MARK: self.mark, "CUDA_VISIBLE_DEVICES": ""}
        with (arguments.output / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, drivers),
            )

    def begin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    def end(self, until: float) -> str:
        """Wait for it, kill what is left of it; how it ended."""
        how = ""
        try:
            code = self._process.wait(max(0.0, until - time.monotonic()))
            how = f"exit status {code}" if code else ""
        except subprocess.TimeoutExpired:
            how = "not over by its deadline"
        self.kill()
        return how

    def kill(self) -> None:
        """All that it started, whatever session that is in: by its mark in the environment."""
        for _ in range(3):  # what was started meanwhile
            for pid in marked(self.mark):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self._process.wait()


def marked(mark: str) -> list[int]:
    """Processes with this mark in the environment that they were started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def run_all(arguments: argparse.Namespace) -> None:
    gpus = arguments.gpu_names
    add_line(arguments.output, {"what": "host", **host(), "uses": gpus})
    rounds = rounds_of(arguments, gpus)
    steps = [[Step(name, layout, arguments) for name, layout in each.items()] for each in rounds]
    began = time.monotonic()
    try:
        for number, together in enumerate(steps):
            # The first round waits for imports, from a cold disk, too.
            allowed_s = arguments.seconds + arguments.slack + (30.0 if number == 0 else 0.0)
            until = time.monotonic() + allowed_s
            for step in together:
                step.begin()
            for step in together:
                if how := step.end(until):
                    tail = (arguments.output / f"{step.name}.log").read_text(errors="replace")
                    add_line(arguments.output, {"what": step.name, "failed": how})
                    print(tail[-3000:], flush=True)
    finally:
        for together in steps:
            for step in together:
                step.kill()
    add_line(arguments.output, {"what": "done", "wall_s": round(time.monotonic() - began, 1)})
    print(summary(arguments.output), flush=True)


def host() -> Row:
    versions = {}
    for name in ("ray", "torch", "triton", "helion", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    shm = shutil.disk_usage("/dev/shm").free >> 20 if Path("/dev/shm").exists() else 0
    cores = len(os.sched_getaffinity(0))
    python = sys.version.split()[0]
    return {"cores": cores, "python": python, "shm_mib": shm, **versions, **gpus_in_use()}


def summary(folder: Path) -> str:
    """One line a step, and how much all GPUs gain over one."""
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    last = {row["what"]: row for row in rows}
    lines = []
    for step in STEPS:
        row = last.get(step)
        if row is None:
            continue
        if row.get("failed"):
            lines.append(f"{step:6}: failed: {row['failed'][:300]}")
            continue
        best = f"{row['best_ms']:.5f} ms" if row["best_ms"] else "nothing"
        lines.append(
            f"{step:6}: GPUs {' | '.join(row['gpus'])}: {row['per_s']:.2f} configurations a "
            f"second, best {best}, lost {row['lost']}, twice {row['twice']}, longest pause "
            f"{row['longest_pause_s']} s; ready after {row['at engines ready']} s, first result "
            f"after {row['at first result']} s, over after {row['ended_at_s']} s"
        )
        if "killed_at_s" in row:
            again = row["measured_elsewhere_after_s"]
            lines.append(
                f"        node killed at {row['killed_at_s']} s, noticed after "
                f"{row['noticed_after_s']} s; {row['on_lost_node']} configurations were there, "
                f"{len(again)} measured elsewhere within {again[-1] if again else 0} s; "
                f"longest pause {row['longest_pause_after_s']} s "
                f"(before: {row['longest_pause_before_s']}); "
                f"{row['per_s_before']} a second before, {row['per_s_after']} after"
            )
        if row.get("trouble"):
            lines.append(f"        trouble: {row['trouble'][:300]}")
    one, everything = last.get("one", {}), last.get("all", {})
    if one.get("per_s") and everything.get("per_s"):
        lines.append(f"all over one: {everything['per_s'] / one['per_s']:.2f} times the rate")
    return "\n".join(lines)


def visible(count: int) -> list[str]:
    """Names of so many GPUs, as CUDA takes them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(number) for number in range(count)]
    return names[:count]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--kernel", default="chunk_scan")
    parser.add_argument("--shape", help="one of the script's; default: its usual")
    parser.add_argument("--seconds", type=float, default=30.0, help="of tuning and of the cloud")
    parser.add_argument("--slack", type=float, default=60.0, help="of starting and ending a step")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--apart", action="store_true", help="one step at a time")
    parser.add_argument("--pretend", action="store_true", help="try the script without any GPU")
    parser.add_argument("--summary", action="store_true", help="of what there is; run nothing")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--own-gpus", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--own-cores", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.output = arguments.output.absolute()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.summary:
        print(summary(arguments.output))
    elif arguments.step:
        run_step(arguments)
    else:
        arguments.gpu_names = visible(arguments.gpus)
        run_all(arguments)


if __name__ == "__main__":
    main()
