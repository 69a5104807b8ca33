"""Archives and benches for tests of the report: written row by row, so that every number is known.

Programs here are never run; traces are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from llamea_gpu.archive import Archive
from llamea_gpu.bench.analysis import analyse
from llamea_gpu.bench.execution import make_plan
from llamea_gpu.bench.plan import BenchSettings, RunKey
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.evolution.behaviour import STYLE_NAMES, Behaviour
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import ChatAnswer, ChatRequest, Message, Usage
from llamea_gpu.programs import Program
from llamea_gpu.programs.classical.iterated_local_search import IteratedLocalSearch
from llamea_gpu.programs.classical.random_search import RandomSearch
from llamea_gpu.prompting import Feedback, SpaceResult
from llamea_gpu.report import read_source, write_report
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.tasks import Task, Trace, build_tasks
from support.driver import run_in_process
from support.recordings import small_recording

SPACES = ("alpha", "beta")
PROGRAM = '''\
class Walker{slot}:
    """Walk from the best of {slot} draws."""

    def __init__(self, first={slot}):
        self.first = first  # how many draws

    def __call__(self, evaluate, space, rng):
        costs = evaluate(space.sample(self.first))
        while True:
            evaluate(space.sample(1))
'''


def program(slot: int, extra: str = "", idea: str = "") -> Program:
    """A program that differs from slot to slot by a few lines."""
    source = PROGRAM.format(slot=slot) + extra
    return Program(source, f"Walker{slot}", (("first", slot),), idea or f"Idea {slot}.", str(slot))


def trace(rows: Sequence[int], costs_ms: Sequence[float], seed: int = 1) -> Trace:
    """A run with an evaluation a second."""
    return Trace(
        rows=np.array(rows, np.int32),
        elapsed_s=np.arange(1.0, len(rows) + 1),
        cost_ms=np.array(costs_ms, float),
        outcome="budget",
        asks=len(rows),
        revisits=0,
        seed=seed,
    )


def feedback(p: float, spaces: Sequence[str] = SPACES, stage: str = "full") -> Feedback:
    """Feedback with the same P on every space."""
    results = tuple(
        SpaceResult(
            space=space,
            p=p,
            standard_error=0.02,
            reference="random_search",
            reference_p=0.1,
            evaluations=12.5,
            revisit_share=0.1,
            failure_share=0.05,
            last_improvement=0.5,
            regret=0.03,
            cpu_s=0.4,
        )
        for space in spaces
    )
    return Feedback(p=p, standard_error=0.02, stage=stage, outcome="ok", spaces=results)


def candidate(slot: int, p: float | None = None, **fields: object) -> Candidate:
    """A scored candidate when ``p`` is given, else a failed one; ``fields`` replace any."""
    values: dict[str, object] = {
        "slot": slot,
        "generation": slot // 4 if slot >= 0 else -1,
        "operator": "refine" if slot >= 0 else "random_search",
        "parents": (),
        "status": FAILED if p is None else SCORED,
        "kind": "error" if p is None else "",
        "message": "Traceback\n  line 3\nZeroDivisionError: division by zero" if p is None else "",
        "attempts": 1 if slot >= 0 else 0,
        "model": "canned" if slot >= 0 else "",
        "program": None if p is None else program(slot + 10),
        "feedback": None if p is None else feedback(p),
        "behaviour": () if p is None else tuple(behaviour(space, abs(p)) for space in SPACES),
    }
    return Candidate(**{**values, **fields})  # type: ignore[arg-type]


def behaviour(space: str, step: float) -> Behaviour:
    """How one searches who differs from others by the size of its steps alone."""
    style = (step,) * len(STYLE_NAMES)
    return Behaviour(space, style, (0.25, 0.75, 0.5, 0.5), (2, 2))


def small_family() -> list[Candidate]:
    """Two seed programs; two new, a refinement, a crossover, one stopped early, two failures."""
    return [
        candidate(-2, 0.0, operator="random_search"),
        candidate(-1, 0.3, operator="iterated_local_search"),
        candidate(0, 0.4, operator="new"),
        candidate(1, 0.2, operator="new", attempts=2),
        candidate(2, 0.55, parents=(0,)),
        candidate(3, 0.5, operator="crossover", parents=(0, 2)),
        candidate(
            4,
            None,
            parents=(2,),
            status=PARTIAL,
            kind="",
            message="stopped after 1 of 2 spaces",
            program=program(14),
            feedback=feedback(0.1, SPACES[:1], "partial"),
            behaviour=(behaviour(SPACES[0], 0.1),),
        ),
        candidate(5, None, operator="explore", parents=(2,), attempts=2),
        candidate(6, None, operator="new", kind="refusal", message="the model declined"),
        candidate(7, 0.6, operator="simplify", parents=(2,)),
    ]


def write_archive(
    folder: Path,
    candidates: Sequence[Candidate],
    *,
    prompt: str = "Write a class.",
    answer: str = "An idea.\n\n```python\n{source}```\n",
    ended: str = "complete",
    evaluations: int = 20,
) -> Path:
    """A run's folder that holds ``candidates``, a call an attempt, and three repeats a space."""
    written = [c for c in candidates if c.slot >= 0]
    settings = EvolutionSettings(
        model="canned",
        spaces=SPACES,
        candidates=max(1, len(written)),
        offspring=4,
        parents=2,
        repeats=3,
        seed_programs=("random_search",),
    )
    facts = {"settings": settings.model_dump_json(), "problem": "x", "program_version": "0.1.0"}
    archive = Archive.create(folder, facts)
    archive.record_event("session", sandbox_level=2, version="0.1.0", settings={})
    for found in candidates:
        _write_calls(archive, found, prompt, answer)
        _write_traces(archive, found, evaluations)
        archive.record_candidate(found.slot, found.to_document())
    if ended:
        archive.record_event("stopped", reason=ended, warnings=[])
    archive.close()
    return folder


def _write_calls(archive: Archive, found: Candidate, prompt: str, answer: str) -> None:
    source = found.program.source if found.program else "no program\n"
    for attempt in range(found.attempts):
        messages = (Message("system", "The contract."), Message("user", f"{prompt} #{found.slot}"))
        request = ChatRequest(f"1-{found.slot:04d}-{attempt}", "canned", messages, max_tokens=1000)
        operator = found.operator if attempt == 0 else "repair"
        archive.record_call(found.slot, attempt, operator, request, "openai")
        text = answer.replace("{source}", source)
        reply = ChatAnswer(
            text, found.model, Usage(1000, 500), "stop", "2026-01-01T00:00:00+00:00", 1.0
        )
        archive.record_answer(request.request_id, reply)


def _write_traces(archive: Archive, found: Candidate, evaluations: int) -> None:
    if found.status == FAILED:
        return
    for space in found.space_p():
        for repeat in range(3):
            rng = np.random.default_rng([found.slot + 100, repeat])
            rows = rng.permutation(200)[:evaluations]
            costs = np.where(rng.random(evaluations) < 0.1, np.inf, 1 + rng.random(evaluations))
            made = trace(rows.tolist(), costs.tolist())
            archive.record_trace(found.slot, max(0, found.attempts - 1), space, repeat, made)


def write_bench(folder: Path, repeats: int = 6, names: Sequence[str] = ("one", "two")) -> Path:
    """A finished bench of two searchers on small recordings, run in this process."""
    tasks = build_tasks([small_recording(name, seed=i) for i, name in enumerate(names)])
    searchers = [resolve("random_search"), resolve("iterated_local_search")]
    plan = make_plan(searchers, tasks, repeats, BenchSettings())
    optimizers = {"random_search": RandomSearch, "iterated_local_search": IteratedLocalSearch}
    by_name: dict[str, Task] = {task.name: task for task in tasks}
    runs: dict[RunKey, Trace] = {
        key: run_in_process(optimizers[key.searcher](), by_name[key.space], plan.seed_of(key))
        for key in plan.runs()
    }
    command = ("llamea-gpu", "bench", "random_search", "iterated_local_search")
    BenchResults(plan, runs, analyse(plan, by_name, runs), command).save(folder)
    return folder


def written(folder: Path, file: Path, *, running: str = "") -> Path:
    """The report of what ``folder`` holds."""
    write_report(read_source(folder), file, title=folder.name, running=running)
    return file
