"""Measure a cloud: a mixture of configurations of a space that is too large to list.

The next configurations are chosen while others are measured (:mod:`llamea_gpu.recording.mixture`),
so that nothing waits for a batch. Results go to a journal as they come: JSON lines, which are a
cloud by themselves (:mod:`llamea_gpu.spaces.formats.cloud_lines`). Killed at any moment, the same
call continues from it.

It knows no framework: a plan says what the space is and how a configuration becomes a task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from llamea_gpu import __version__
from llamea_gpu.cluster.pipeline import ClusterPipeline
from llamea_gpu.contract import Configuration
from llamea_gpu.engine.journal import Journal, journal_path, open_journal
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.errors import RecordingError
from llamea_gpu.modelled import WholeSpace
from llamea_gpu.recording._base import HOPELESS, RecordProgress, RecordSettings, Tracker
from llamea_gpu.recording.mixture import Mixture
from llamea_gpu.recording.trajectory import MakeSpace, Trajectories
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats import export_cloud, import_cloud
from llamea_gpu.spaces.formats.cloud_lines import Points
from llamea_gpu.spaces.quoting import quoted

SEARCHERS = ("steady_state_genetic_algorithm", "conditioned_local_search", "growing_foresight")
_MESSAGE = 160  # letters of what a failure said


@dataclass(frozen=True, slots=True)
class MixtureSettings:
    """What a cloud is a mixture of, in whatever framework.

    Attributes:
        measurements: how many, those of earlier calls included.
        searchers: specs of those whose trajectories are part of the cloud.
        evaluations: of each run of a searcher; then it begins anew.
        points: configurations to measure before all others.
    """

    measurements: int
    searchers: tuple[str, ...] = SEARCHERS
    evaluations: int = 200
    points: Points | None = None


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """What a cloud is of.

    Attributes:
        header: the journal's first line, JSON values throughout; see
            :mod:`llamea_gpu.spaces.formats.cloud_lines`.
        make_space: the space for one who draws from it.
        draw: a random configuration, None where one is hard to find.
        payload: the task of a configuration for the first stage.
        measured: an outcome's entries of a journal's line, but for what is known of every one.
        facts: what the stages say of the run once one has measured, as JSON values.
        gpu: identifies the first GPU to nvidia-smi; empty: not known.
    """

    header: Mapping[str, Any]
    make_space: MakeSpace
    draw: Callable[[np.random.Generator], Configuration | None]
    payload: Callable[[Configuration], Any]
    measured: Callable[[Outcome], Mapping[str, Any]]
    facts: Callable[[Pipeline | ClusterPipeline], Mapping[str, Any]]
    gpu: str | int = ""


@dataclass(frozen=True, slots=True)
class CloudOutcome:
    """How a call ended.

    Attributes:
        cloud: what was written; None when nothing was measured.
        journal: the journal, which is gone once all measurements are there.
        done: measurements, those of earlier calls included; measured: by this call.
        measured_s: seconds from its first result to its last; elapsed_s: of the whole call.
        interrupted: by Ctrl-C.
        troubles: why searchers were given up, by their specs.
    """

    cloud: Cloud | None
    journal: Path
    done: int
    measured: int
    measured_s: float
    elapsed_s: float
    interrupted: bool
    troubles: Mapping[str, str]


def measure_cloud(
    plan: CloudPlan,
    pipeline: Pipeline | ClusterPipeline,
    ahead: int,
    output: Path,
    settings: MixtureSettings,
    record_settings: RecordSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
    start: float | None = None,
) -> CloudOutcome:
    """Put a mixture of configurations through a pipeline and write ``output`` (native format).

    Ended by time or by Ctrl-C, it writes what there is and keeps the journal.

    Args:
        plan: what the cloud is of.
        pipeline: open; the caller ends it. Of this machine's GPUs, or of a cluster's.
        ahead: how many configurations are on their way.
        output: the file to write; an earlier one of the same journal is replaced.
        settings: what is mixed.
        record_settings: the seed of all that is drawn, the time, and what is said of the call.
        progress: told of each result.
        start: of ``time.monotonic``, when the run began; now, if not given.

    Raises:
        RecordingError: see :class:`Pipeline` and :func:`open_journal`. What was measured by then is
            written.
        SearcherError: a searcher is not there.
    """
    start = monotonic() if start is None else start
    journal_file = journal_path(output)
    space = plan.make_space(np.random.default_rng(record_settings.seed))
    points = _given(space, settings.points)
    mixture = _mixture(plan, settings, record_settings.seed, ahead, space, points)
    tracker = Tracker(progress, start, settings.measurements)
    deadline = None if record_settings.seconds is None else start + record_settings.seconds
    with ExitStack() as stack:
        stack.callback(mixture.stop)
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # kernels are launched beside
        journal = stack.enter_context(open_journal(journal_file, plan.header))
        session = _Session(plan, mixture, journal, tracker)
        journal.append({"run": _about(plan, record_settings)})
        interrupted = whole = False
        try:
            session.run(pipeline, ahead, settings.measurements, deadline)
            whole = tracker.done >= settings.measurements
        except KeyboardInterrupt:
            interrupted = True
        except RecordingError:
            if not tracker.worked:  # nothing to go on with, and the mended kernel will be another
                journal_file.unlink()
            raise
        finally:
            journal.sync()
            cloud = (
                _written(journal_file, output) if tracker.done and journal_file.exists() else None
            )
        if whole or not tracker.done:
            journal_file.unlink()
    return CloudOutcome(
        cloud,
        journal_file,
        tracker.done,
        tracker.measured,
        tracker.measured_s,
        monotonic() - start,
        interrupted,
        mixture.troubles(),
    )


def short_device(name: str) -> str:
    """A device's name as part of a cloud's: "h200" of NVIDIA H200."""
    return re.sub(r"\W+", "-", name.removeprefix("NVIDIA ")).strip("-").lower()


def cloud_provenance(settings: MixtureSettings) -> dict[str, str]:
    """What is known of every cloud's making."""
    return {
        "source": f"measured by llamea_gpu {__version__}",
        "searchers": ", ".join(settings.searchers),
    }


class _Session:
    """One call's measuring: proposes, hands out, takes in."""

    def __init__(
        self, plan: CloudPlan, mixture: Mixture, journal: Journal, tracker: Tracker
    ) -> None:
        self._plan, self._mixture = plan, mixture
        self._journal, self._tracker = journal, tracker
        self._flying: dict[int, tuple[Configuration, str]] = {}
        self._points = 0
        self._has_facts = False
        known = [entry for entry in journal.entries if "c" in entry]
        tracker.resume(row["status"] for row in known)
        for row in known:
            self._learn(row)

    def run(
        self,
        pipeline: Pipeline | ClusterPipeline,
        ahead: int,
        measurements: int,
        deadline: float | None,
    ) -> None:
        """Until all is measured, time is up, or nothing new is to be found."""
        tracker = self._tracker
        while tracker.done < measurements:
            while len(self._flying) < min(ahead, measurements - tracker.done):
                proposal = self._mixture.propose()
                if proposal is None:
                    break
                pipeline.submit([self._task(*proposal)])
            outcomes = pipeline.wait(deadline)
            for outcome in outcomes:
                self._take_in(outcome)
                tracker.require_hope(HOPELESS, outcome.status, outcome.details.get("message", ""))
            if not outcomes:
                break
            if not self._has_facts and any(outcome.benchmark_s for outcome in outcomes):
                self._has_facts = True
                self._journal.append({"facts": self._plan.facts(pipeline)})

    def _task(self, config: Configuration, origin: str) -> Task:
        self._points += 1
        self._flying[self._points] = config, origin
        return Task(self._points, self._plan.payload(config))

    def _take_in(self, outcome: Outcome) -> None:
        config, origin = self._flying.pop(outcome.point)
        row = {"c": config, "how": origin, **_row(outcome), **self._plan.measured(outcome)}
        self._tracker.add(row["status"])
        self._journal.append({**row, "at": round(self._tracker.elapsed_s, 3)})
        self._learn(row)
        self._tracker.report()

    def _learn(self, row: Mapping[str, Any]) -> None:
        cost = row["ms"] if row["status"] == "ok" else math.inf
        self._mixture.learn(tuple(row["c"]), cost, row["how"])


def _about(plan: CloudPlan, record_settings: RecordSettings) -> dict[str, Any]:
    """What is known of a run beforehand."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "command": record_settings.command,
        "seed": record_settings.seed,
        **(gpu_facts(plan.gpu) if plan.gpu else {}),
    }


def _given(space: WholeSpace, points: Points | None) -> list[tuple[Configuration, str]]:
    """The points, normalised."""
    if points is None:
        return []
    for name, wanted, actual in (
        ("names", points.names, space.names),
        ("values", points.values, space.values),
    ):
        if repr(wanted) != repr(actual):
            raise RecordingError(
                f"points must be of the space that is measured, but their {name} are "
                f"{quoted(wanted)}, those here {quoted(actual)}: they are of another kernel, shape "
                f"or version"
            )
    normalised = [(space.canonical(config), config, origin) for config, origin in points.rows]
    for canonical, config, _ in normalised:
        if canonical is None:
            raise RecordingError(f"points must be valid configurations, but {config} is not")
    return [(canonical, origin) for canonical, _, origin in normalised if canonical is not None]


def _mixture(
    plan: CloudPlan,
    settings: MixtureSettings,
    seed: int,
    parallel: int,
    space: WholeSpace,
    points: Sequence[tuple[Configuration, str]],
) -> Mixture:
    rng = np.random.default_rng(seed)
    drawing, mixing, *others = rng.spawn(2 + len(settings.searchers))
    searchers = [
        Trajectories(spec, plan.make_space, own, settings.evaluations, parallel)
        for spec, own in zip(settings.searchers, others, strict=True)
    ]
    return Mixture(space, lambda: plan.draw(drawing), searchers, mixing, points)


def _row(outcome: Outcome) -> dict[str, Any]:
    """A journal's line, as far as every framework's outcomes are alike."""
    details, ok = outcome.details, outcome.status == "ok"
    return {
        "status": outcome.status,
        "ms": details["time_ms"] if ok else None,
        "compile_s": round(outcome.compile_s, 4),
        "bench_s": round(outcome.benchmark_s, 4),
        "message": None if ok else str(details.get("message", ""))[:_MESSAGE],
    }


def _written(journal: Path, output: Path) -> Cloud:
    """The cloud of a journal, as ``output``."""
    cloud, _ = import_cloud(journal)
    export_cloud(cloud, output)
    return cloud
