"""Promotion: the best candidates of a run, tuned, put before the gate, and written when they pass.

What it does, for one candidate after another until one passes: tune its constants on the training
spaces; fix the text that would ship; check what needs no validation; record the look, then run it
and the incumbents on the validation spaces with paired seeds; judge; write optimizer and card.

What it does not do: give a program a second look at a validation space. The look is in the archive
before a run starts, so that one which is interrupted counts as well; a candidate that fails an
earlier check keeps it.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import pydantic.dataclasses
from pydantic import Field

from llamea_gpu import __version__
from llamea_gpu.archive import Archive
from llamea_gpu.bench.plan import BenchSettings
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.bench.suites import spaces_of
from llamea_gpu.cluster import open_runner
from llamea_gpu.errors import AnswerError, ArchiveError, SettingsError
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings, recorded_settings
from llamea_gpu.modelled import AnyTask, WholeTask, load_tasks
from llamea_gpu.programs import Program, admit, read_program
from llamea_gpu.promotion import gate
from llamea_gpu.promotion.card import Card, Check, Modelled, Origin, write_promoted
from llamea_gpu.promotion.incumbents import Incumbents, for_whole_spaces, reusable_runs
from llamea_gpu.promotion.measurements import modelled_of, training_of, validation_of
from llamea_gpu.promotion.source import shipped_text, snake_case
from llamea_gpu.promotion.tuning import Tuning, tune
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import BaseRunner
from llamea_gpu.runner.yardsticks import with_yardsticks
from llamea_gpu.scoring import MEASURED, Measure, measure_of
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.spaces.catalogue import cloud_file, is_cloud
from llamea_gpu.tasks import Trace

VALIDATION_SEED = 1  # of the results that ship, so that they need not be run again
FOLDER = "promotion"  # in the run folder: what validation showed

Progress = Callable[[str], None]


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class PromotionSettings:
    """What ``llamea-gpu promote`` can be told: a field's description is the help of its option."""

    slot: int | None = Field(None, description="One candidate instead of the best.")
    top: int = Field(
        3, ge=1, description="Most candidates to consider; the first that passes ends it."
    )
    name: str = Field("", description="Name to ship under; default: the class's in snake_case.")
    dry_run: bool = Field(False, description="Tune and check, but look at no validation space.")
    repeats: int = Field(25, ge=5, description="Runs of each searcher on each validation space.")
    tuning_runs: int = Field(
        400, ge=0, description="Most runs that tuning the constants may take; 0: none."
    )
    into: Path | None = Field(
        None, description="Folder to write to; default: that of the shipped ones."
    )
    spaces: tuple[str, ...] = Field((), description="Training spaces instead of the run's.")
    validation: tuple[str, ...] = Field(
        (),
        description="Validation spaces: name, pattern, split, suite or file; default: validation, "
        "or whole-validation for a run on modelled whole spaces.",
    )
    budget_s: float | None = Field(
        None, gt=0, description="Simulated seconds on a whole space; default: as in the run."
    )
    unfit: bool = Field(
        False, description="Validate on models that have not passed their gate, too."
    )
    incumbents: tuple[str, ...] = Field((), description="Whom to beat instead.")
    baseline: Path | None = Field(
        None, description="Take incumbents' runs from another bench's folder."
    )
    charge_cpu: bool | None = Field(
        None, description="Own CPU seconds count as tuning time; default: as in the run."
    )
    workers: int | None = Field(None, ge=1, description="Runs side by side; default: all cores.")
    cluster: str = Field(
        "", description="'ray', HOST:PORT or ray://HOST:PORT: run on the nodes of a Ray cluster."
    )
    spaces_path: tuple[Path, ...] = Field(
        (), description="Folder with further recordings. Also: LLAMEA_GPU_SPACES."
    )
    unsafe: bool = Field(
        False, description="Run untrusted code without isolation (disposable VMs only)."
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one candidate, by scores that are called ``measure``.

    ``tuning`` is None for one that had looked before; ``card`` and ``path`` are, unless it was
    promoted.
    """

    slot: int
    name: str
    tuning: Tuning | None
    checks: tuple[Check, ...]
    measure: Measure = MEASURED
    card: Card | None = None
    path: Path | None = None

    @property
    def passed(self) -> bool:
        """Whether no check failed; of a dry run, which makes fewer of them, too."""
        return all(check.passed for check in self.checks)


def promote(
    run: Path, settings: PromotionSettings, progress: Progress = lambda _: None
) -> list[Report]:
    """Consider candidates of the run in ``run``, best first, until one is promoted.

    Raises:
        ArchiveError: the folder holds no run, or no such candidate.
        SettingsError: training and validation overlap, or one is on recordings and the other on
            modelled whole spaces.
        TaskError: a model has not passed its gate.
        SpaceError: a space is not found.
    """
    with closing(Archive.open(run)) as archive:
        population = Population.read(archive)
        recorded = recorded_settings(archive.facts.get("settings", ""))
        training, validation, names = _tasks(recorded, settings)
        _refuse_overlap(population, training, validation)
        chosen = _chosen(archive, population, settings, validation)
        reports: list[Report] = []
        with open_runner(settings.cluster, settings.workers, unsafe=settings.unsafe) as runner:
            training, validation = (
                with_yardsticks(tasks, runner) for tasks in (training, validation)
            )
            promotion = Promotion(
                run, archive, recorded, settings, training, validation, names, runner
            )
            for candidate in chosen:
                reports.append(promotion.consider(candidate, progress))
                if reports[-1].path is not None:
                    break
    return reports


def _search_path(recorded: EvolutionSettings, settings: PromotionSettings) -> tuple[Path, ...]:
    return (*settings.spaces_path, *map(Path, recorded.spaces_path))


def _tasks(
    recorded: EvolutionSettings, settings: PromotionSettings
) -> tuple[tuple[AnyTask, ...], tuple[AnyTask, ...], tuple[str, ...]]:
    """On training spaces, on validation spaces, and what the latter are named by."""
    path = _search_path(recorded, settings)
    budget_s = _budget_s(recorded, settings)
    training = load_tasks(
        spaces_of(settings.spaces or recorded.spaces, path),
        path,
        recorded.clock,
        unfit=recorded.unfit or settings.unfit,
        budget_s=budget_s,
    )
    whole = isinstance(training[0], WholeTask)
    default = "whole-validation" if whole else "validation"
    names = spaces_of(settings.validation or (default,), path)
    if any(is_cloud(name, path) != whole for name in names):
        kinds = ("modelled whole spaces", "recordings")
        raise SettingsError(
            f"training and validation must be of one kind, since P is measured and the score on "
            f"whole spaces modelled, but training is on {kinds[not whole]} and validation on "
            f"{', '.join(names)}: give {kinds[not whole]} with --validation"
        )
    validation = load_tasks(names, path, recorded.clock, unfit=settings.unfit, budget_s=budget_s)
    return training, validation, names


def _budget_s(recorded: EvolutionSettings, settings: PromotionSettings) -> float | None:
    return recorded.budget_s if settings.budget_s is None else settings.budget_s


def _refuse_overlap(
    population: Population, training: Sequence[AnyTask], validation: Sequence[AnyTask]
) -> None:
    """Validation is on measurements that neither evolution nor tuning has seen."""
    seen = {name for candidate in population.candidates for name in candidate.space_p()}
    seen |= {task.name for task in training}
    known = {task.fingerprint for task in training}
    wrong = [task.name for task in validation if task.name in seen or task.fingerprint in known]
    if wrong:
        raise SettingsError(
            f"validation must be on spaces that the run was not trained on, but it was on "
            f"{', '.join(wrong)}: give others with --validation"
        )


def _chosen(
    archive: Archive,
    population: Population,
    settings: PromotionSettings,
    validation: Sequence[AnyTask],
) -> list[Candidate]:
    """The candidate that was named, or the best of those that may still look."""
    scored = [c for c in population.written().scored() if c.program is not None]
    if settings.slot is not None:
        matching = [candidate for candidate in scored if candidate.slot == settings.slot]
        if not matching:
            raise ArchiveError(
                f"a candidate to promote must be fully scored, but slot {settings.slot} is not: "
                f"'llamea-gpu runs show' lists those that are"
            )
        return matching
    looked = _looked(archive, validation)
    fresh = [c for c in scored if c.program is not None and _digest(c.program) not in looked]
    if not fresh:
        raise ArchiveError(
            f"promotion needs a scored candidate that has not been validated on these spaces, but "
            f"of {len(scored)} there is none: evolve on, or validate on other spaces"
        )
    return fresh[: settings.top]


def _looked(archive: Archive, validation: Sequence[AnyTask]) -> set[str]:
    """Digests of the programs that have seen one of the spaces."""
    spaces = {task.fingerprint for task in validation}
    return {look.digest for look in archive.looks() if look.space in spaces}


def _digest(program: Program) -> str:
    """Worked out again, where it can be: the archive's own might name another program."""
    try:
        return admit(program.source).digest
    except AnswerError:
        return program.digest


class Promotion:
    """Puts candidates of one run before the gate, one at a time."""

    def __init__(
        self,
        run: Path,
        archive: Archive,
        recorded: EvolutionSettings,
        settings: PromotionSettings,
        training: Sequence[AnyTask],
        validation: Sequence[AnyTask],
        names: Sequence[str],
        runner: BaseRunner,
    ) -> None:
        self._run = run
        self._archive = archive
        self._recorded = recorded
        self._settings = settings
        self._training = tuple(training)
        self._validation = tuple(validation)
        self._names = names
        self._runner = runner
        self._into = settings.into or resource_dir("generated_optimizers")
        self._charge_cpu = (
            recorded.charge_cpu if settings.charge_cpu is None else settings.charge_cpu
        )
        self._whole = any(isinstance(task, WholeTask) for task in validation)
        self._measure = measure_of(self._whole)
        self._budget_s = _budget_s(recorded, settings)
        bench = BenchSettings(
            VALIDATION_SEED, recorded.clock, self._charge_cpu, budget_s=self._budget_s
        )
        # What ships are runs on recordings.
        reusable = not self._whole or settings.baseline is not None
        baseline = reusable_runs(settings.baseline) if reusable else None
        specs = settings.incumbents or (for_whole_spaces() if self._whole else ())
        self._incumbents = Incumbents(specs, bench, settings.repeats, baseline)

    def consider(self, candidate: Candidate, progress: Progress) -> Report:
        """Tune, check, look, judge, and write."""
        program = candidate.program
        assert program is not None
        name = self._settings.name or snake_case(program.class_name)
        if not self._settings.dry_run and _digest(program) in self._looked():
            checks = [gate.first_look(0), *self._unseen("There is no second look.")]
            return Report(candidate.slot, name, None, tuple(checks), self._measure)
        progress(f"{candidate.identifier} {program.class_name}: tuning")
        written = read_program(program.source, program.class_name)
        tuning = tune(
            written,
            self._training,
            self._runner,
            runs=self._settings.tuning_runs,
            seed=self._recorded.seed,
            cpu_limit_s=self._recorded.cpu_limit_s,
            charge_cpu=self._charge_cpu,
            budget_s=self._budget_s,
        )
        text = shipped_text(written, tuning.settings)
        searcher = ProgramSearcher(name, read_program(text, program.class_name))
        progress(f"{candidate.identifier}: contract, determinism, export")
        checks = self._before_the_look(searcher, tuning)
        report = Report(candidate.slot, name, tuning, tuple(checks), self._measure)
        if self._settings.dry_run:
            return report
        failed = [check.name for check in checks if not check.passed]
        if failed:
            reason = f"No look was spent on it, because it fails: {', '.join(failed)}."
            return replace(report, checks=(*checks, *self._unseen(reason)))
        return self._validated(report, candidate, searcher, tuning, progress)

    def _looked(self) -> set[str]:
        return _looked(self._archive, self._validation)

    def _before_the_look(self, searcher: ProgramSearcher, tuning: Tuning) -> list[Check]:
        unsafe = self._settings.unsafe
        traces = {task.name: tuning.traces(task.name) for task in self._training}
        return [
            gate.free_name(searcher.name, self._into),
            gate.contract(searcher.program.source, searcher.program.class_name),
            gate.clean_runs([trace for runs in traces.values() for trace in runs]),
            gate.own_cpu(self._training, traces),
            gate.determinism(searcher, self._training, unsafe),
            gate.exportable(searcher),
            *self._incumbents.problems,
        ]

    def _unseen(self, reason: str) -> list[Check]:
        names = self._incumbents.names(self._validation)
        return [Check(f"beats {name}", "not measured", "> 0", False, reason) for name in names]

    def _validated(
        self,
        report: Report,
        candidate: Candidate,
        searcher: ProgramSearcher,
        tuning: Tuning,
        progress: Progress,
    ) -> Report:
        assert candidate.program is not None
        spaces = [task.fingerprint for task in self._validation]
        self._archive.record_look(candidate.slot, _digest(candidate.program), spaces)
        look = len(self._looked())
        progress(f"{candidate.identifier}: validation on {len(spaces)} spaces, look {look}")
        folder = self._run / FOLDER / f"slot-{candidate.slot}-look-{look}"
        benches = self._incumbents.bench(searcher, self._validation, self._runner, folder)
        checks = (
            *self._merged(report.checks, tuning, benches[0], searcher.name),
            gate.first_look(look),
            *(
                gate.beats(pair, gate.level_of(look), self._measure)
                for results in benches
                if results.analysis is not None
                for pair in results.analysis.comparisons_of(searcher.name)
            ),
        )
        report = replace(report, checks=checks)
        self._archive.record_event(
            "promotion",
            candidate.slot,
            name=report.name,
            look=look,
            failed=[check.name for check in checks if not check.passed],
        )
        if not report.passed:
            return report
        card = self._card(report, candidate, searcher, tuning, benches, look)
        return replace(
            report, card=card, path=write_promoted(card, searcher.program.source, self._into)
        )

    def _merged(
        self, checks: Sequence[Check], tuning: Tuning, results: BenchResults, name: str
    ) -> list[Check]:
        """``checks``, those of runs and CPU now over validation's runs as well."""
        tasks = (*self._training, *self._validation)
        traces: dict[str, list[Trace]] = {t.name: tuning.traces(t.name) for t in self._training}
        traces |= {task.name: results.traces(name, task.name) for task in self._validation}
        replacements = {
            check.name: check
            for check in (
                gate.clean_runs([trace for runs in traces.values() for trace in runs]),
                gate.own_cpu(tasks, traces),
            )
        }
        return [replacements.get(check.name, check) for check in checks]

    def _card(
        self,
        report: Report,
        candidate: Candidate,
        searcher: ProgramSearcher,
        tuning: Tuning,
        benches: Sequence[BenchResults],
        look: int,
    ) -> Card:
        program = candidate.program
        assert program is not None
        now = datetime.now(timezone.utc)
        return Card(
            format_version=1,
            name=report.name,
            class_name=searcher.program.class_name,
            idea=searcher.program.idea,
            date=now.date().isoformat(),
            command=self._command(report.name, benches),
            provenance=self._origin(candidate, program),
            hyperparameters=searcher.program.settings,
            written=read_program(program.source, program.class_name).settings,
            training=training_of(tuning),
            validation=validation_of(report.name, benches, look, gate.level_of(look)),
            checks=report.checks,
            source_sha256=hashlib.sha256(searcher.program.source.encode()).hexdigest(),
            modelled=self._modelled(report.name, benches[0]),
        )

    def _modelled(self, name: str, results: BenchResults) -> Modelled | None:
        if not self._whole:
            return None
        path = _search_path(self._recorded, self._settings)
        tasks = [task for task in self._validation if isinstance(task, WholeTask)]
        files = [cloud_file(each, path) for each in self._names]
        return modelled_of(name, list(zip(tasks, files, strict=True)), results)

    def _origin(self, candidate: Candidate, program: Program) -> Origin:
        calls = [call for call in self._archive.calls() if call.slot == candidate.slot]
        answered = [call for call in calls if call.answer is not None]
        population = Population.read(self._archive)
        parents = map(population.find, candidate.parents)
        return Origin(
            model=candidate.model,
            run=self._run.resolve().name,
            slot=candidate.slot,
            operator=candidate.operator,
            parents=tuple(parent.identifier for parent in parents if parent),
            prompt_sha256=answered[-1].request.key if answered else "",
            digest=_digest(program),
            version=__version__,
        )

    def _command(self, name: str, benches: Sequence[BenchResults]) -> str:
        """A bench with the same seeds: the same numbers."""
        rest = [s.name for results in benches for s in results.plan.searchers if s.name != name]
        # One by one: a split may grow.
        files = [Path(each).name if Path(each).is_file() else each for each in self._names]
        spaces = [part for each in files for part in ("--spaces", each)]
        clock = ["--clock", self._recorded.clock] if self._recorded.clock else []
        options = ["--repeats", str(self._settings.repeats), "--seed", str(VALIDATION_SEED)]
        charge = ["--charge-cpu"] if self._charge_cpu else []
        if self._budget_s is not None:
            options += ["--budget-s", f"{self._budget_s:g}"]
        if self._settings.unfit:
            options.append("--unfit")
        arguments = [name, *dict.fromkeys(rest), *spaces, *options, *clock, *charge]
        return shlex.join(["llamea-gpu", "bench", *arguments])
