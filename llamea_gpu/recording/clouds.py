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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from llamea_gpu.recording.mixture import Mixture
from llamea_gpu.recording.progress import RecordProgress
from llamea_gpu.recording.trajectory import MakeSpace, Trajectories, WholeSpace
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats import export_cloud, import_cloud
from llamea_gpu.spaces.formats.cloud_lines import Points
from llamea_gpu.spaces.quoting import quoted

SEARCHERS = ("steady_state_genetic_algorithm", "conditioned_local_search", "growing_foresight")
_HOPELESS = 100  # failures without one success: a compiler, a reference or a device is wrong
_MESSAGE = 160  # letters of what a failure said


@dataclass(frozen=True, slots=True)
class MixtureSettings:
    """What a cloud is a mixture of, in whatever framework.

    Attributes:
        measurements: how many, those of earlier calls included.
        seconds: end in order after this time, starting included; None: no limit.
        searchers: specs of those whose trajectories are part of the cloud.
        evaluations: of each run of a searcher; then it begins anew.
        seed: of all that is drawn.
        name: of the cloud; None for kernel, problem and device.
        command: how it was called, for the cloud's provenance.
        points: configurations to measure before all others.
    """

    measurements: int
    seconds: float | None = None
    searchers: tuple[str, ...] = SEARCHERS
    evaluations: int = 200
    seed: int = 0
    name: str | None = None
    command: str = ""
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
        progress: told of each result.
        start: of ``time.monotonic``, when the run began; now, if not given.

    Raises:
        RecordingError: see :class:`Pipeline` and :func:`open_journal`. What was measured by then is
            written.
        SearcherError: a searcher is not there.
    """
    start = monotonic() if start is None else start
    where = journal_path(output)
    space = plan.make_space(np.random.default_rng(settings.seed))
    mixture = _mixture(plan, settings, ahead, space, _given(space, settings.points))
    with ExitStack() as stack:
        stack.callback(mixture.stop)
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # kernels are launched beside
        journal = stack.enter_context(open_journal(where, plan.header))
        session = _Session(plan, settings, mixture, journal, progress, start)
        interrupted = whole = False
        try:
            session.run(pipeline, ahead)
            whole = session.done >= settings.measurements
        except KeyboardInterrupt:
            interrupted = True
        except RecordingError:
            if not session.worked:  # nothing to go on with, and the mended kernel will be another
                where.unlink()
            raise
        finally:
            journal.sync()
            cloud = _written(where, output) if session.done and where.exists() else None
        if whole or not session.done:
            where.unlink()
    return CloudOutcome(
        cloud,
        where,
        session.done,
        session.measured,
        session.measured_s,
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
        self,
        plan: CloudPlan,
        settings: MixtureSettings,
        mixture: Mixture,
        journal: Journal,
        progress: Callable[[RecordProgress], None],
        start: float,
    ) -> None:
        self._plan, self._settings, self._mixture = plan, settings, mixture
        self._journal, self._progress, self._start = journal, progress, start
        self._flying: dict[int, tuple[Configuration, str]] = {}
        self._points = self.measured = self.done = self._failed = 0
        self._first = self._last = 0.0
        self._has_facts = self.worked = False
        self._resume(journal.entries)
        journal.append({"run": self._about()})

    @property
    def measured_s(self) -> float:
        """Seconds from the first result of this call to its last."""
        return self._last - self._first

    def run(self, pipeline: Pipeline | ClusterPipeline, ahead: int) -> None:
        """Until all is measured, time is up, or nothing new is to be found."""
        seconds = self._settings.seconds
        deadline = None if seconds is None else self._start + seconds
        while self.done < self._settings.measurements:
            while len(self._flying) < ahead and self._more():
                found = self._mixture.propose()
                if found is None:
                    break
                pipeline.submit([self._task(*found)])
            outcomes = pipeline.wait(deadline)
            for outcome in outcomes:
                self._take_in(outcome)
                self._check_hope(outcome)
            if not outcomes:
                break
            if not self._has_facts and any(outcome.benchmark_s for outcome in outcomes):
                self._note_facts(pipeline)

    def _check_hope(self, outcome: Outcome) -> None:
        if not self.worked and self.done >= _HOPELESS:
            raise RecordingError(
                f"a kernel must work for some configurations, but all {self.done} so far failed, "
                f"the last with {outcome.status}: {outcome.details.get('message', '')}"
            )

    def _more(self) -> bool:
        return self.done + len(self._flying) < self._settings.measurements

    def _task(self, config: Configuration, how: str) -> Task:
        self._points += 1
        self._flying[self._points] = config, how
        return Task(self._points, self._plan.payload(config))

    def _take_in(self, outcome: Outcome) -> None:
        config, how = self._flying.pop(outcome.point)
        self._last = monotonic()
        self._first = self._first or self._last
        row = {
            "c": config,
            "how": how,
            **_row(outcome),
            "at": round(self._last - self._start, 3),
            **self._plan.measured(outcome),
        }
        self._journal.append(row)
        self.measured += 1
        self._count(row)
        left_s = None
        if self.measured > 1:
            left = self._settings.measurements - self.done
            left_s = left * self.measured_s / (self.measured - 1)
        self._progress(
            RecordProgress(
                self.done,
                self._settings.measurements,
                self._failed,
                self._last - self._start,
                left_s,
            )
        )

    def _resume(self, entries: Iterable[Mapping[str, Any]]) -> None:
        for entry in entries:
            if "c" in entry:
                self._count(entry)

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done += 1
        self._failed += row["status"] != "ok"
        self.worked |= row["status"] == "ok"
        cost = row["ms"] if row["status"] == "ok" else math.inf
        self._mixture.learn(tuple(row["c"]), cost, row["how"])

    def _note_facts(self, pipeline: Pipeline | ClusterPipeline) -> None:
        self._has_facts = True
        self._journal.append({"facts": self._plan.facts(pipeline)})

    def _about(self) -> dict[str, Any]:
        clocks = gpu_facts(self._plan.gpu) if self._plan.gpu else {}
        return {
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "command": self._settings.command,
            "seed": self._settings.seed,
            **clocks,
        }


def _given(space: WholeSpace, points: Points | None) -> list[tuple[Configuration, str]]:
    """The points, normalised."""
    if points is None:
        return []
    for name, wanted, found in (
        ("names", points.names, space.names),
        ("values", points.values, space.values),
    ):
        if repr(wanted) != repr(found):
            raise RecordingError(
                f"points must be of the space that is measured, but their {name} are "
                f"{quoted(wanted)}, those here {quoted(found)}: they are of another kernel, shape "
                f"or version"
            )
    given = [(space.canonical(config), config, how) for config, how in points.rows]
    for canonical, config, _ in given:
        if canonical is None:
            raise RecordingError(f"points must be valid configurations, but {config} is not")
    return [(canonical, how) for canonical, _, how in given if canonical is not None]


def _mixture(
    plan: CloudPlan,
    settings: MixtureSettings,
    parallel: int,
    space: WholeSpace,
    given: Sequence[tuple[Configuration, str]],
) -> Mixture:
    rng = np.random.default_rng(settings.seed)
    drawing, mixing, *others = rng.spawn(2 + len(settings.searchers))
    searchers = [
        Trajectories(spec, plan.make_space, own, settings.evaluations, parallel)
        for spec, own in zip(settings.searchers, others, strict=True)
    ]
    return Mixture(space, lambda: plan.draw(drawing), searchers, mixing, given)


def _row(outcome: Outcome) -> dict[str, Any]:
    """A journal's line, as far as every framework's outcomes are alike."""
    said, ok = outcome.details, outcome.status == "ok"
    return {
        "status": outcome.status,
        "ms": said["time_ms"] if ok else None,
        "compile_s": round(outcome.compile_s, 4),
        "bench_s": round(outcome.benchmark_s, 4),
        "message": None if ok else str(said.get("message", ""))[:_MESSAGE],
    }


def _written(journal: Path, output: Path) -> Cloud:
    """The cloud of a journal, as ``output``."""
    cloud, _ = import_cloud(journal)
    export_cloud(cloud, output)
    return cloud
