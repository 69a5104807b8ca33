"""An optimizer in Kernel Tuner's simulation mode, live or exported: which configurations it visits.

What it does: `visits` has a worker process tune a recording with ``tune_kernel`` and returns the
rows that it measured, to compare with those of the simulator. The program is confined before it is
loaded (`llamea_gpu.export.confinement`).

What it does not do: compare. Kernel Tuner is imported in the worker alone.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from llamea_gpu.errors import SearcherError
from llamea_gpu.export.confinement import confine, run_forms, run_worker, tell
from llamea_gpu.export.kernel_tuner import export_source
from llamea_gpu.live.optimizer import LoadedOptimizer, Provenance
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.formats.native import read_native
from llamea_gpu.spaces.recording import Recording


def visits(
    optimizer: LoadedOptimizer,
    recording: Recording,
    folder: Path,
    *,
    evaluations: int,
    seed: int,
    unsafe: bool = False,
) -> tuple[list[int], ...]:
    """The rows of ``recording`` that ``evaluations`` first visits measure: live, then exported.

    Raises:
        SearcherError: Kernel Tuner is not installed, the optimizer cannot be exported, or its run
            failed.
    """
    require("kernel_tuner", "kernel-tuner", "parity with Kernel Tuner")
    native, cache = folder / "space.parquet", folder / "space.json"
    export_recording(recording, native, "native")
    # Kernel Tuner refuses a cache of another problem size than it is asked to tune: here, 1.
    sizeless = replace(recording.info, provenance={})
    export_recording(replace(recording, info=sizeless), cache, "kernel-tuner")
    job = {
        "name": optimizer.name,
        "class_name": optimizer.class_name,
        "source": optimizer.source,
        "exported": export_source(optimizer),
        "hyperparameters": dict(optimizer.hyperparameters),
        "native": str(native),
        "cache": str(cache),
        "evaluations": evaluations,
        "seed": seed,
        "unsafe": unsafe,
    }
    try:
        return tuple(
            [int(row) for row in told] for told in run_worker(__name__, job, folder, forms=2)
        )
    except ValueError as error:
        raise SearcherError("a run must tell rows, but told something else") from error


class _Probe:
    """A strategy that `tune_kernel` has prepared everything for; it tells what was measured."""

    def __init__(
        self, job: dict[str, Any], recording: Recording, load: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._job = job
        self._recording = recording
        self._load = load

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> None:
        """Confine the process, load the program, run it, and end the process with the result."""
        confine(self._job["source"], unsafe=self._job["unsafe"])
        results = self._load(self._job).tune(searchspace, runner, tuning_options)
        tell([str(row) for row in _rows(self._recording, list(results))])


def _live(job: dict[str, Any]) -> Any:
    from llamea_gpu.live.kernel_tuner.runtime import KernelTunerStrategy

    optimizer = LoadedOptimizer(
        name=job["name"],
        class_name=job["class_name"],
        source=job["source"],
        idea="",
        hyperparameters=job["hyperparameters"],
        provenance=Provenance("file"),
    )
    optimizer.make()  # what it imports draws no random numbers later, when the run is seeded
    make = lambda **settings: optimizer.with_settings(**settings).make()  # noqa: E731
    return KernelTunerStrategy(job["name"], make, job["hyperparameters"], job["seed"])


def _exported(job: dict[str, Any]) -> Any:
    module = types.ModuleType("exported")
    sys.modules["exported"] = module
    exec(compile(job["exported"], "exported", "exec"), module.__dict__)  # noqa: S102 - confined
    return getattr(module, f"{job['class_name']}Strategy")(seed=job["seed"])


def _rows(recording: Recording, results: list[dict[str, Any]]) -> list[int]:
    space = recording.space
    pairs = list(zip(space.names, space.values, strict=True))
    return [space.row(tuple(vs.index(result[n]) for n, vs in pairs)) for result in results]


def _tune(job: dict[str, Any], recording: Recording, load: Callable[[dict[str, Any]], Any]) -> None:
    from constraint import FunctionConstraint  # type: ignore[import-untyped]
    from kernel_tuner import tune_kernel

    space = recording.space
    valid = {
        tuple(values[i] for values, i in zip(space.values, row, strict=True))
        for row in space.configurations.tolist()
    }
    tune_kernel(
        recording.info.kernel,
        "",
        1,
        [],
        {name: list(values) for name, values in zip(space.names, space.values, strict=True)},
        restrictions=[FunctionConstraint(lambda *values: values in valid)],
        cache=job["cache"],
        simulation_mode=True,
        strategy=_Probe(job, recording, load),
        strategy_options={"max_fevals": job["evaluations"]},
        quiet=True,
    )


def _main() -> None:
    import constraint  # noqa: F401 - for both forms at once
    import kernel_tuner  # noqa: F401

    import llamea_gpu.live.kernel_tuner.runtime  # noqa: F401

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    recording = read_native(Path(job["native"]))
    run_forms([partial(_tune, job, recording, load) for load in (_live, _exported)])


if __name__ == "__main__":
    _main()
