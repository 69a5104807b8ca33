"""A session of a run: builds what the loop needs from settings and a run folder, and drives it.

It owns the order of things (lock, archive, runner, route, loop, and their closing). What the loop
decides is not here, nor anything that is shown.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu import __version__
from llamea_gpu.archive import Archive
from llamea_gpu.cluster import open_runner
from llamea_gpu.errors import ArchiveError, SettingsError
from llamea_gpu.evolution import training_spaces
from llamea_gpu.evolution.calls import Observer
from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.inspiration import Inspiration, load_inspiration
from llamea_gpu.evolution.loop import Evolution, Outcome
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings, continued
from llamea_gpu.evolution.spending import spent_on
from llamea_gpu.llm import (
    BatchOptions,
    Caps,
    ChatClient,
    Ledger,
    OpenAIOptions,
    Price,
    ReplayOptions,
    RouteOptions,
    RunEstimate,
    Totals,
    find_price,
    load_prices,
    make_client,
    parse_price,
)
from llamea_gpu.modelled import AnyTask, WholeTask, load_tasks
from llamea_gpu.programs import admit
from llamea_gpu.prompting import PromptContext, SpaceFacts, render
from llamea_gpu.runner import BaseRunner
from llamea_gpu.runner.yardsticks import with_yardsticks
from llamea_gpu.scoring import Measure, measure_of
from llamea_gpu.searchers.registry import ProgramSearcher, resolve_program
from llamea_gpu.spaces.features import compute_features, compute_whole_features

# For the estimate: most prompts show one program, and strong models write 200-500 lines.
TYPICAL_PARENT_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class Problem:
    """What candidates of a run are measured on, told about and compared with."""

    tasks: tuple[AnyTask, ...]
    facts: tuple[SpaceFacts, ...]
    seeds: tuple[ProgramSearcher, ...]
    inspirations: tuple[Inspiration, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether its spaces are whole ones, with modelled costs."""
        return any(isinstance(task, WholeTask) for task in self.tasks)

    @property
    def measure(self) -> Measure:
        """What scores on it are called."""
        return measure_of(self.is_whole)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that scores rest on: measurements, clocks, seed programs."""
        digest = hashlib.sha256()
        for task in self.tasks:
            _update(digest, task)
        named_programs = [(seed.name, seed.program) for seed in self.seeds]
        named_programs += [(brought.name, brought.program) for brought in self.inspirations]
        for name, program in named_programs:
            digest.update(repr((name, program.source, program.hyperparameters)).encode())
        return digest.hexdigest()


def _update(digest: hashlib._Hash, task: AnyTask) -> None:
    if isinstance(task, WholeTask):
        digest.update(f"{task.fingerprint} {task.clock.name} {task.budget_s:g}".encode())
        return
    recording = task.recording
    digest.update(f"{recording.space.fingerprint} {task.clock.name}".encode())
    for column in (recording.time_ms, recording.compile_s, recording.benchmark_s):
        digest.update(np.ascontiguousarray(column, "<f8").tobytes())


def build_problem(settings: EvolutionSettings) -> Problem:
    """Tasks and prompt facts of the training spaces, and the seed programs.

    Raises:
        SettingsError: a space is given repeats of its own that is not trained on.
    """
    search_path = tuple(Path(folder) for folder in settings.spaces_path)
    tasks = load_tasks(
        settings.spaces,
        search_path,
        settings.clock,
        unfit=settings.unfit,
        budget_s=settings.budget_s,
    )
    names = [task.name for task in tasks]
    unknown = sorted(set(settings.repeats_by_space) - set(names))
    if unknown:
        raise SettingsError(
            f"repeats_by_space must name training spaces ({', '.join(names)}), but got "
            f"{', '.join(unknown)}"
        )
    facts = tuple(
        SpaceFacts(
            features=(
                compute_whole_features(task.cloud)
                if isinstance(task, WholeTask)
                else compute_features(task.recording)
            ),
            clock=task.clock.name,
            budget_evaluations=task.budget_evaluations,
            parallel=task.clock.parallel,
            budget_s=task.budget_s,
        )
        for task in tasks
    )
    seeds = tuple(_admitted(resolve_program(spec)) for spec in settings.seed_programs)
    inspirations = tuple(load_inspiration(spec) for spec in settings.inspirations)
    return Problem(tasks, facts, seeds, inspirations)


def estimate(settings: EvolutionSettings, problem: Problem) -> RunEstimate:
    """What the run costs at most, repairs and requests that break off left aside.

    With several models, as if the dearest answered everything.
    """
    context = PromptContext(
        spaces=problem.facts, cpu_limit_s=settings.cpu_limit_s, guidance=settings.guidance
    )
    prompt = sum(map(len, render("new", context)))
    estimates = [
        build_ledger(settings).estimate(
            n_requests=settings.candidates,
            prompt_chars=prompt + TYPICAL_PARENT_CHARS,
            max_tokens=settings.max_tokens,
            model=model,
        )
        for model in settings.models
    ]
    unpriced = next((e for e in estimates if e.usd is None), None)
    return unpriced or max(estimates, key=lambda e: e.usd or 0)


def build_ledger(settings: EvolutionSettings) -> Ledger:
    """An empty ledger with the run's prices and caps."""
    usd = None if settings.max_usd is None else Decimal(str(settings.max_usd))
    return Ledger(prices_of(settings), Caps(usd, settings.max_tokens_total, settings.max_answers))


def prices_of(settings: EvolutionSettings) -> dict[str, Price]:
    """The price table of a run, with those of its models that it has only by the settings."""
    prices = load_prices(Path(settings.prices) if settings.prices else None)
    price_text = settings.price or ("0,0" if settings.free else "")
    if price_text:
        own = [model for model in settings.models if find_price(prices, model) is None]
        prices |= dict.fromkeys(own, parse_price(price_text))
    return prices


def build_client(folder: Path, settings: EvolutionSettings) -> ChatClient:
    """The route of the run in ``folder``."""
    options: RouteOptions
    if settings.route == "batch":
        exchange = Path(settings.exchange) if settings.exchange else folder / "exchange"
        options = BatchOptions(exchange, settings.poll_s)
    elif settings.route == "replay":
        options = ReplayOptions(Path(settings.replay), settings.replay_strict)
    else:
        options = OpenAIOptions(
            base_url=settings.base_url,
            api_key_env=settings.api_key_env,
            timeout_s=settings.timeout_s,
            max_retries=settings.max_retries,
            max_concurrency=settings.offspring,
        )
    return make_client(options, np.random.default_rng(settings.seed))


def check_route(folder: Path, settings: EvolutionSettings) -> None:
    """Fail now rather than after the seeds are scored: no key, no recording, no server there."""
    if settings.route != "batch":  # an exchange folder is made when it is needed
        asyncio.run(_try_out(build_client(folder, settings)))


async def _try_out(client: ChatClient) -> None:
    try:
        await client.preflight()
    finally:
        await client.aclose()


def _spent(archive: Archive, settings: EvolutionSettings) -> Totals:
    """What earlier sessions of the run spent.

    A request to a live endpoint that was neither answered nor given up was under way when its
    session was killed, and may have been billed: that loss is recorded now.
    """
    for call in archive.calls():
        if call.answer is None and call.route == "openai" and not call.lost:
            archive.record_loss(call.request.request_id, 1)
    past = Ledger(prices_of(settings))
    spent_on(archive.calls(), past)
    return past.totals


def start(folder: Path, settings: EvolutionSettings, problem: Problem) -> Archive:
    """A new run in ``folder``.

    Raises:
        ArchiveError: the folder holds a run already, or cannot be written.
    """
    facts = {
        "settings": settings.model_dump_json(),
        "problem": problem.fingerprint,
        "program_version": __version__,
        training_spaces.FACT: training_spaces.fact_of(problem.tasks),
    }
    if problem.inspirations:
        provenance = [dict(inspiration.provenance) for inspiration in problem.inspirations]
        facts["inspirations"] = json.dumps(provenance)
    return Archive.create(folder, facts)


def resume(folder: Path, overrides: dict[str, Any]) -> tuple[Archive, EvolutionSettings]:
    """The run in ``folder`` and its settings with the changeable ``overrides``."""
    archive = Archive.open(folder)
    recorded = archive.facts.get("settings")
    if recorded is None:
        raise ArchiveError(f"{archive.path} must hold the run's settings, but does not")
    return archive, continued(recorded, overrides)


def is_complete(archive: Archive, settings: EvolutionSettings) -> bool:
    """Whether every candidate that the settings ask for is settled."""
    return len(Population.read(archive).written().candidates) >= settings.candidates


def drive(
    folder: Path,
    archive: Archive,
    settings: EvolutionSettings,
    problem: Problem,
    observer: Observer = lambda *_: None,
) -> Outcome:
    """Run (or go on) until a budget ends; everything is closed afterwards, also on Ctrl-C.

    Raises:
        ArchiveError: another process works on the run, or its scores rest on another problem.
    """
    if archive.facts.get("problem") != problem.fingerprint:
        raise ArchiveError(
            f"a run goes on with the recordings and seed programs that it began with, but those "
            f"now found under these names differ from what {archive.path} began with: give the "
            f"same files with --spaces-path, or start a new run"
        )
    with _locked(folder):
        ledger = build_ledger(settings)
        ledger.restore(_spent(archive, settings))
        expected = estimate(settings, problem)
        observer("started", None, {"ledger": ledger, "estimate": expected})
        with open_runner(
            settings.cluster,
            settings.workers,
            min_level=settings.min_sandbox_level,
            unsafe=settings.unsafe_no_sandbox,
        ) as runner:
            archive.record_event(
                "session",
                sandbox_level=runner.level,
                version=__version__,
                settings=settings.model_dump(mode="json"),
            )
            try:
                return asyncio.run(
                    _drive(folder, archive, settings, problem, ledger, runner, observer)
                )
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None


async def _drive(
    folder: Path,
    archive: Archive,
    settings: EvolutionSettings,
    problem: Problem,
    ledger: Ledger,
    runner: BaseRunner,
    observer: Observer,
) -> Outcome:
    client = build_client(folder, settings)
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        # Ctrl-C cancels the run at its next await, on every Python alike; a second one is not
        # waited for.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, _cancel_once, loop, task)
    try:
        tasks = await asyncio.to_thread(with_yardsticks, problem.tasks, runner)
        cascade = Cascade(tasks, runner, archive, settings)
        evolution = Evolution(settings, archive, client, ledger, cascade, problem.facts, observer)
        outcome = await evolution.run(problem.seeds, problem.inspirations)
        archive.record_event("stopped", reason=outcome.reason, warnings=list(outcome.warnings))
        return outcome
    finally:
        await client.aclose()


def _admitted(seed: ProgramSearcher) -> ProgramSearcher:
    program = admit(seed.program.source)
    return replace(seed, program=program.with_settings(**seed.program.settings))


def _cancel_once(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Outcome]) -> None:
    loop.remove_signal_handler(signal.SIGINT)
    task.cancel()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the run folder: two sessions on one archive would pay for everything twice.

    Raises:
        ArchiveError: another process works on it.
    """
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArchiveError(
                f"one process at a time may work on a run, but another holds {folder}: "
                f"wait for it, or stop it"
            ) from None
        yield
