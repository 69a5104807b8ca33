"""`BenchResults`: a finished bench, and the folder it is kept in.

``bench.json`` says what was run and what was found; ``bench.parquet`` holds one row a run:

| column | type | meaning |
|---|---|---|
| searcher, space | string | names, as in ``bench.json`` |
| repeat, seed | int64 | paired: the seed depends on space and repeat alone |
| outcome, error | string | how it ended (`llamea_gpu.tasks.OUTCOMES`), what it said (or null) |
| asks, revisits | int64 | configurations answered, those of them from memory |
| evaluations, failed_evaluations | int64 | first visits, those of them that do not work |
| best_ms | float64 | the best cost found, inf when nothing worked |
| regret | float64 | best / optimum - 1, of the median cost when nothing worked |
| cpu_s | float64 | the searcher's own CPU seconds, null when not measured |
| evaluations_to_10_percent, (5, 1) | int64 | the first within that of the optimum, null if none |
| seconds_to_10_percent, (5, 1) | float64 | when that was, in simulated seconds |
| rows | list of int32 | the configurations visited, as rows of the space, in order |
| elapsed_s, cost_ms | lists of float64 | when each was done; what it cost, inf for a failure |

What it does not do: run a bench or keep an unfinished one (`llamea_gpu.bench.execution` does). A
folder may come from anywhere: everything in it is checked, and what follows from the traces is
computed from them again. What was found (`Analysis`) is checked for form alone: computing it again
takes the recordings (`llamea_gpu.bench.analysis.analyse`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from llamea_gpu import __version__
from llamea_gpu.bench.findings import Analysis
from llamea_gpu.bench.plan import MAX_RUNS, Plan, RunKey
from llamea_gpu.bench.tables import read_runs, write_runs
from llamea_gpu.errors import BenchError
from llamea_gpu.files import read_bytes, write_atomically, write_text
from llamea_gpu.resources import resource_dir
from llamea_gpu.tasks import Trace

SUMMARY = "bench.json"
RUNS = "bench.parquet"
_MAX_SUMMARY_BYTES = 1 << 26


SHIPPED = "h200"


@dataclass(frozen=True, slots=True)
class BenchResults:
    """What was run, every run's trace, and what was found.

    ``runs`` holds a trace for each run of the plan. ``analysis`` is None for a bench that is not
    finished. ``version`` is llamea_gpu's, ``command`` what was typed.
    """

    plan: Plan
    runs: Mapping[RunKey, Trace]
    analysis: Analysis | None = None
    command: tuple[str, ...] = ()
    version: str = __version__

    def traces(self, searcher: str, space: str) -> list[Trace]:
        """The runs of one searcher on one space, by repeat."""
        return [
            self.runs[key]
            for repeat in range(self.plan.repeats)
            if (key := RunKey(searcher, space, repeat)) in self.runs
        ]

    def to_json(self) -> str:
        """The content of ``bench.json``: everything but the traces."""
        document = _Summary(1, self.version, self.command, self.plan, self.analysis)
        return _SUMMARY.dump_json(document).decode()

    def save(self, folder: Path) -> None:
        """Write both files, each whole or not at all; the runs first."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RUNS, lambda path: write_runs(path, self.plan, self.runs))
        write_text(folder / SUMMARY, self.to_json())

    @classmethod
    def load(cls, folder: Path) -> BenchResults:
        """Read what `save` wrote.

        Raises:
            BenchError: the folder is missing or unfinished, or breaks a rule.
        """
        results = cls.load_unfinished(folder)
        missing = sum(key not in results.runs for key in results.plan.runs())
        if missing or results.analysis is None:
            raise BenchError(
                f"the bench in {folder} must be finished, but {missing} runs are missing: give "
                f"the command that began it again"
            )
        return results

    @classmethod
    def load_unfinished(cls, folder: Path) -> BenchResults:
        """Read a folder whose bench may go on: runs may be missing, and what was found.

        Raises:
            BenchError: as for `load`, but for an unfinished one.
        """
        document = _read_summary(folder / SUMMARY)
        runs = read_runs(folder / RUNS, document.plan)
        return cls(document.plan, runs, document.analysis, document.command, document.version)


@dataclass(frozen=True, slots=True)
class _Summary:
    """``bench.json``."""

    format_version: Literal[1]
    version: str
    command: tuple[str, ...]
    plan: Plan
    analysis: Analysis | None = None


_SUMMARY = TypeAdapter(_Summary)


def _read_summary(path: Path) -> _Summary:
    try:
        if not path.is_file():
            raise BenchError(
                f"a bench's folder must hold {SUMMARY}, but {path.parent} does not: give the "
                f"folder that 'llamea-gpu bench -o' wrote"
            )
        document = _SUMMARY.validate_json(read_bytes(path, _MAX_SUMMARY_BYTES))
    except OSError as error:
        raise BenchError(f"{path} must be readable, but: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise BenchError(
            f"{path}: {location or 'the document'}: {first['msg']}: run the bench again, or get "
            f"the folder again"
        ) from error
    _check_names(path, document)
    return document


def _check_names(path: Path, document: _Summary) -> None:
    """What no type says: names are distinct, and the analysis speaks of this bench's."""
    plan, analysis = document.plan, document.analysis
    searchers = [searcher.name for searcher in plan.searchers]
    spaces = [space.name for space in plan.spaces]
    rules = {
        "distinct searchers, at least one": 0 < len(searchers) == len(set(searchers)),
        "distinct spaces, at least one": 0 < len(spaces) == len(set(spaces)),
        f"at most {MAX_RUNS} runs": plan.size <= MAX_RUNS,
    }
    if analysis is not None:
        pairs = [{pair.first, pair.second} for pair in analysis.comparisons]
        rules |= {
            "one standing for each searcher": sorted(s.searcher for s in analysis.standings)
            == sorted(searchers),
            "each space in each standing": all(
                [space.space for space in standing.spaces] == spaces
                for standing in analysis.standings
            ),
            "comparisons of its searchers": all(pair <= set(searchers) for pair in pairs),
            "ranks of its searchers": analysis.ranks is None
            or {mean.searcher for mean in analysis.ranks.mean_ranks} == set(searchers),
        }
    for rule, holds in rules.items():
        if not holds:
            raise BenchError(f"{path}: a bench must have {rule}, but has not: get it again")


def load_baseline(folder: Path | None = None) -> BenchResults:
    """The bench in ``folder``, or the repository's.

    Raises:
        BenchError: it is missing, unfinished or malformed.
    """
    shipped = shipped_baseline()
    if folder is None and not shipped.is_dir():
        raise BenchError(
            f"the results to compare with must be in {shipped}, but a wheel leaves them out: give "
            f"a bench's folder with --baseline-from (one of your own, or the repository's "
            f"tuning_spaces/baselines/{SHIPPED})"
        )
    return BenchResults.load(folder or shipped)


def shipped_baseline() -> Path:
    """The repository's results; a wheel has no such folder."""
    return resource_dir("tuning_spaces") / "baselines" / SHIPPED
