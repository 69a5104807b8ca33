"""The rules of promotion, each a check with what was measured and what was wanted.

What it does: judges runs and a program's text.

What it does not do: choose candidates, record looks or write files (see
`llamea_gpu.promotion.procedure`). A check that could not be made has failed, and says why.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from llamea_gpu.bench.findings import Comparison
from llamea_gpu.errors import AnswerError, SearcherError
from llamea_gpu.export import helion, kernel_tuner
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import admit
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.promotion.card import Check
from llamea_gpu.runner import Runner
from llamea_gpu.scoring import Measure
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.tasks import Trace, run_seed

CPU_SHARE = 0.05
LEVEL = 0.05  # of all looks of a run together
_DETERMINISM_SEED = 11
_WORKERS = (1, 2)


def free_name(name: str, folder: Path) -> Check:
    """Nothing that ships, and no file of ``folder``, has the name, and Python can import it.

    Nor is anything validated that could not be written.
    """
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        sentence = f"{folder} is no folder that can be written to: give another with --into."
        return Check("name", "no folder", "free", False, sentence)
    taken = name in shipped() or any(
        (folder / f"{name}{suffix}").exists() for suffix in (".py", ".json")
    )
    if taken:
        sentence = f"{name} is taken, and a promotion overwrites nothing: give another --name."
        return Check("name", "taken", "free", False, sentence)
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        sentence = f"{name} cannot be imported as a module: give an identifier with --name."
        return Check("name", "no identifier", "free", False, sentence)
    return Check("name", "free", "free", True, f"It ships as {name}.")


def contract(source: str, class_name: str) -> Check:
    """The text passes admission, and is found without naming its class, as shipped ones are."""
    name, threshold = "contract", "admitted"
    try:
        run_as = admit(source).class_name
    except AnswerError as error:
        return Check(name, "refused", threshold, False, str(error))
    if run_as != class_name:
        sentence = f"The optimizer must be {class_name}, but {run_as} is what the file is run as."
        return Check(name, run_as, threshold, False, sentence)
    return Check(name, "admitted", threshold, True, "It keeps the rules of the contract.")


def clean_runs(traces: Sequence[Trace]) -> Check:
    """Every run ended with its budget, or by itself, and measured something."""
    failed = [trace for trace in traces if trace.is_failed]
    measured = f"{len(failed)} of {len(traces)} runs failed"
    if not failed and traces:
        return Check("runs", measured, "0", True, "Every sandboxed run ended in order.")
    complaint = next((trace.error for trace in failed if trace.error), "") or ""
    last = complaint.strip().splitlines()[-1:] or ["no message"]
    outcomes = ", ".join(sorted({trace.outcome for trace in failed})) or "no run"
    return Check("runs", measured, "0", False, f"Runs ended as {outcomes}: {last[0]:.200}")


def own_cpu(tasks: Sequence[AnyTask], traces: Mapping[str, Sequence[Trace]]) -> Check:
    """The optimizer's own CPU seconds, as a share of what it tunes for, on its worst space."""
    shares = {
        task.name: float(np.mean([trace.cpu_s or 0.0 for trace in traces[task.name]]))
        / task.budget_s
        for task in tasks
    }
    worst = max(shares, key=shares.__getitem__)
    return Check(
        "own CPU",
        f"{shares[worst]:.2%}",
        f"< {CPU_SHARE:.0%}",
        shares[worst] < CPU_SHARE,
        f"Its own computing is {shares[worst]:.2%} of the tuning budget on {worst}, the worst.",
    )


def determinism(
    searcher: ProgramSearcher,
    tasks: Sequence[AnyTask],
    unsafe: bool,
    workers: Sequence[int] = _WORKERS,
) -> Check:
    """The same seed gives the same trace in sandboxes of their own, of one and of two workers."""
    runs_by_workers = []
    for count in workers:
        with Runner.open(workers=count, unsafe=unsafe) as runner:
            runs = [
                runner.submit(searcher, task, run_seed(_DETERMINISM_SEED, task.name, 0))
                for task in tasks
            ]
            runs_by_workers.append([run.result() for run in runs])
    others = [
        task.name
        for task, *traces in zip(tasks, *runs_by_workers, strict=True)
        if any(not _same(traces[0], other) for other in traces[1:])
    ]
    measured = f"{len(others)} of {len(tasks)} spaces differ"
    if others:
        return Check(
            "determinism",
            measured,
            "0",
            False,
            f"The same seed gives other visits on {', '.join(others)}: something besides the seed "
            f"decides.",
        )
    sentence = "The same seed gives the same visits in fresh processes, with one and two workers."
    return Check("determinism", measured, "0", True, sentence)


def exportable(searcher: ProgramSearcher) -> Check:
    """The text can be written as one file for each framework."""
    try:
        helion.export_source(searcher)
        kernel_tuner.export_source(searcher)
    except SearcherError as error:
        return Check("export", "refused", "possible", False, str(error))
    sentence = "It can be exported to Helion and to Kernel Tuner."
    return Check("export", "possible", "possible", True, sentence)


def first_look(look: int) -> Check:
    """Validation was new to the program, the run's ``look``-th to see it; 0: it was not."""
    if not look:
        sentence = (
            "It has seen one of the validation spaces before (a look that was interrupted counts): "
            "validate on others, or evolve on."
        )
        return Check("first look", "a second one", "the first", False, sentence)
    measured = f"look {look} of its run"
    return Check("first look", measured, "the first", True, "Validation was new to it.")


def level_of(look: int) -> float:
    """The level at which the run's ``look``-th look is judged: alpha / (k (k + 1)).

    The levels of all looks add up to `LEVEL`, however many follow, so that trying candidate after
    candidate promotes by chance no more often than that.
    """
    return LEVEL / (look * (look + 1))


def beats(pair: Comparison, level: float, measure: Measure) -> Check:
    """The first of ``pair`` has a higher score, with the interval of ``level`` clear of zero."""
    interval, p_value = pair.interval, pair.p_value
    difference = f"{measure.name} {pair.difference:+.3f}"
    difference += f" [{interval.low:+.3f}, {interval.high:+.3f}]" if interval else ""
    passed = pair.difference > 0 and p_value is not None and p_value < level
    certainty = f"p {p_value:.2g}" if p_value is not None else "too few repeats for an interval"
    return Check(
        f"beats {pair.second}",
        f"{difference}, {certainty}",
        f"> 0, p < {level:.2g}",
        passed,
        f"It {'beats' if passed else 'is not shown to beat'} {pair.second}: {difference}, ahead on "
        f"{pair.wins} of {pair.wins + pair.losses + pair.ties} spaces.",
    )


def _same(first: Trace, second: Trace) -> bool:
    """Equal in all but CPU time; on a whole space, whose rows count visits, in configurations."""
    columns = ("rows", "configurations", "elapsed_s", "cost_ms", "outcome", "asks", "revisits")
    return all(np.array_equal(getattr(first, c), getattr(second, c)) for c in columns)
