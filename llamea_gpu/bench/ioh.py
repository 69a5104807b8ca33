"""Recordings as IOHexperimenter problems, and benches as IOHprofiler logs.

`problem` gives an integer problem whose variables are value indices: any algorithm written for
``ioh`` runs on it. There is no budget and no clock: IOHexperimenter counts calls, so a
configuration that is asked for twice counts twice, and compile times play no part.

`write_logs` writes what IOHanalyzer and ``iohinspector`` read, without ``ioh``. The format:
https://iohprofiler.github.io/IOHanalyzer/data/. One folder a searcher; in it, for each space, a
JSON file with the runs and a ``.dat`` file with a line for each evaluation: its number, the cost in
ms (``raw_y``), the simulated seconds when it was done, and the value indices of the configuration.
A configuration that fails costs ``inf``. Functions are numbered by the order of the bench's spaces,
from 1; the instance is 1, and the n-th run is the n-th repeat. In JSON, which knows no infinity, a
run in which nothing worked has the largest double as its best. A run without a single evaluation is
one that failed once, at 0 s.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llamea_gpu.bench.results import BenchResults
from llamea_gpu.errors import SpaceError
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.catalogue import load_space, search_path_from_environment
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SearchSpace
from llamea_gpu.tasks import Trace

if TYPE_CHECKING:
    from ioh.iohcpp.problem import IntegerSingleObjective


FORMAT_VERSION = "0.3.5"  # of IOHexperimenter, whose format this is
SUITE = "llamea_gpu"


def problem(space: str | Recording, search_path: Sequence[Path] = ()) -> IntegerSingleObjective:
    """The recording as an ``ioh`` problem to minimise: kernel time in ms.

    ``space`` is a recording, or what names one (a shipped name, a file, or a name under
    ``search_path`` or ``LLAMEA_GPU_SPACES``). Variable j lies in 0..cardinality_j - 1. A
    configuration that is not valid, or that fails, costs ``inf``. The optimum is the recording's,
    so that ``state.final_target_found`` says when it is reached.

    Raises:
        SpaceError: nothing in the recording works.
        UnknownSpaceError: nothing answers to ``space``.
        SearcherError: ``ioh`` is not installed; the message names the extra.
    """
    require("ioh", "ioh", "an IOHexperimenter problem")
    import ioh

    if isinstance(space, Recording):
        recording = space
    else:
        recording = load_space(space, (*search_path, *search_path_from_environment()))
    configurations = recording.space
    time_ms = recording.time_ms
    if not math.isfinite(recording.optimum_ms):
        raise SpaceError(f"{recording.info.name}: a problem needs a configuration that works")
    best = list(configurations.configuration(int(time_ms.argmin())))

    def cost(x: Sequence[int]) -> float:
        row = configurations.row(tuple(x))
        return float(time_ms[row]) if row >= 0 else math.inf

    def optimum(_instance: int, _dimension: int) -> tuple[list[int], float]:
        return best, recording.optimum_ms

    wrap: Any = ioh.wrap_problem  # annotated narrower than what it takes
    problem: IntegerSingleObjective = wrap(
        cost,
        name=recording.info.name,
        problem_class=ioh.ProblemClass.INTEGER,
        dimension=configurations.dimension,
        lb=0,
        ub=max(configurations.cardinalities) - 1,
        calculate_objective=optimum,
    )
    problem.bounds.ub = [cardinality - 1 for cardinality in configurations.cardinalities]
    return problem


def write_logs(results: BenchResults, spaces: Mapping[str, SearchSpace], folder: Path) -> None:
    """Write every run of ``results`` below ``folder``. ``spaces`` are its spaces, by name."""
    for number, searcher in enumerate(results.plan.searchers, start=1):
        home = folder / f"{number:02d}-{_file_name(searcher.name)}"
        for function, info in enumerate(results.plan.spaces, start=1):
            traces = results.traces(searcher.name, info.name)
            _write_function(home, searcher.name, function, info.name, spaces[info.name], traces)


def _write_function(
    home: Path,
    searcher: str,
    function: int,
    name: str,
    space: SearchSpace,
    traces: Sequence[Trace],
) -> None:
    label = f"f{function}_{_file_name(name)}"
    data = Path(f"data_{label}") / f"IOHprofiler_f{function}_DIM{space.dimension}.dat"
    (home / data).parent.mkdir(parents=True)
    parameters = " ".join(f"x{j}" for j in range(space.dimension))
    header = f"evaluations raw_y elapsed_s {parameters}"
    with (home / data).open("w", encoding="ascii") as file:
        for trace in traces:
            file.write("\n".join([header, *_lines(space, trace)]) + "\n")
    document = {
        "version": FORMAT_VERSION,
        "suite": SUITE,
        "function_id": function,
        "function_name": name,
        "maximization": False,
        "algorithm": {"name": searcher, "info": ""},
        "attributes": ["evaluations", "raw_y", "elapsed_s"],
        "scenarios": [
            {
                "dimension": space.dimension,
                "path": data.as_posix(),
                "runs": [_run(space, trace) for trace in traces],
            }
        ],
    }
    (home / f"IOHprofiler_{label}.json").write_text(json.dumps(document, indent=1))


def _lines(space: SearchSpace, trace: Trace) -> list[str]:
    if not trace.rows.size:
        return [" ".join(["1", "inf", "0.0", *("0" for _ in space.names)])]
    return [
        " ".join([str(number), repr(cost), repr(elapsed), *map(str, space.configuration(row))])
        for number, (cost, elapsed, row) in enumerate(
            zip(trace.cost_ms.tolist(), trace.elapsed_s.tolist(), trace.rows.tolist(), strict=True),
            start=1,
        )
    ]


def _run(space: SearchSpace, trace: Trace) -> dict[str, object]:
    worked = math.isfinite(trace.best_ms)
    first = int(np.argmin(trace.cost_ms)) if worked else 0
    row = int(trace.rows[first]) if trace.rows.size else 0
    return {
        "instance": 1,
        "evals": max(1, int(trace.rows.size)),
        "best": {
            "evals": first + 1,
            "y": trace.best_ms if worked else sys.float_info.max,
            "x": list(space.configuration(row)),
        },
    }


def _file_name(name: str) -> str:
    """A searcher's or space's name as a part of a path, at most 80 characters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-80:] or "unnamed"
