"""Measure a cloud of a Kernel Tuner kernel that has too many configurations to list.

Configurations are compiled, checked and timed by ``kernel_tuner.tune_kernel`` in processes of their
own, as when a space is recorded whole; what they measure is chosen by
:mod:`llamea_gpu.recording.clouds`, from windows of the space that Kernel Tuner's own solver lists
(:mod:`llamea_gpu.frameworks.kernel_tuner.unlisted`). Clouds have the sequential clock, as such
recordings do: they say what each configuration costs on its own.

Kernel Tuner reports the mean of its readings, so there are no quartiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.frameworks.kernel_tuner.kernel_script import KernelScript, load_kernel_script
from llamea_gpu.frameworks.kernel_tuner.stage import measurement
from llamea_gpu.frameworks.kernel_tuner.unlisted import UnlistedSpace
from llamea_gpu.recording._base import LEFT_OUT, KernelTunerSettings, RecordProgress
from llamea_gpu.recording.clouds import (
    CloudOutcome,
    CloudPlan,
    MixtureSettings,
    cloud_provenance,
    measure_cloud,
    short_device,
)
from llamea_gpu.recording.kernel_tuner.record import (
    agreed,
    how_measured,
    kernel_tuner_version,
    nvidia_facts,
    opened,
)

_AHEAD = 2  # configurations on their way, for each process


def record_cloud(
    script: Path,
    output: Path,
    settings: MixtureSettings,
    record_settings: KernelTunerSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
) -> CloudOutcome:
    """Measure a cloud of a kernel's whole space and write ``output`` (native format).

    Ended by time or by Ctrl-C, it writes what there is and keeps the journal.

    Args:
        script: the kernel script, which is executed, in this process too.
        output: the file to write; an earlier one of the same journal is replaced.
        settings: what is mixed.
        record_settings: devices or cluster, compilers, backend, iterations, time limit and sizes;
            the rest plays no part.
        progress: told of each result.

    Raises:
        RecordingError: the script does not load, no device answers, no valid configuration is
            found, the first 100 configurations fail, twenty in a row crash, or the journal is of
            something else. What was measured by then is written.
        SearcherError: Kernel Tuner is not installed, or a searcher is not there.
    """
    start = monotonic()
    kernel_tuner_version()
    with opened(script, record_settings, listed=False) as (pipeline, record_settings):
        kernel = load_kernel_script(script, record_settings.sizes)
        plan = plan_cloud(kernel, agreed(pipeline.facts()), settings, record_settings)
        ahead = _AHEAD * record_settings.compilers * len(record_settings.devices)
        return measure_cloud(
            plan, pipeline, ahead, output, settings, record_settings, progress, start
        )


def plan_cloud(
    script: KernelScript,
    facts: Mapping[str, Any],
    settings: MixtureSettings,
    record_settings: KernelTunerSettings,
) -> CloudPlan:
    """What is measured; ``facts`` are what the measuring processes say.

    Raises:
        RecordingError: no valid configuration is found.
    """

    def make_space(rng: np.random.Generator) -> UnlistedSpace:
        return UnlistedSpace(
            script.arguments["tune_params"],
            script.arguments.get("restrictions"),
            facts["max_threads"],
            script.default_configuration,
            rng,
        )

    space = make_space(np.random.default_rng(record_settings.seed))
    gpu = nvidia_facts(facts, record_settings)
    header = {
        "journal": 1,
        "name": record_settings.name or f"{facts['name']}-{short_device(facts['device'])}",
        "kernel": facts["kernel"],
        "kernel_source": facts["kernel_source"],
        "script": script.path.stem,
        "shape": ", ".join(f"{name}={value}" for name, value in record_settings.sizes.items()),
        "arguments": facts["arguments"],
        "device": facts["device"],
        "framework": f"kernel_tuner ({facts['language']})",
        "compilers": 1,
        "names": space.names,
        "values": space.values,
        "ordinal": space.ordinal,
        "default": space.default,
        "starts": space.starts,
        "provenance": _provenance(facts, gpu, settings, record_settings),
    }
    return CloudPlan(
        header,
        make_space,
        space.draw,
        lambda config: config,
        measured,
        lambda _: {},
        str(facts["environment"].get("pci_bus_id") or record_settings.devices[0]) if gpu else "",
    )


def measured(outcome: Outcome) -> dict[str, Any]:
    """Entries of a journal's line. What the device cannot launch is a failure to run."""
    entry = measurement(outcome)
    status = "runtime_error" if entry["status"] == LEFT_OUT else entry["status"]
    return {
        "status": status,
        "ms": entry["time_ms"] if status == "ok" else None,
        "compile_s": entry["compile_s"],
        "bench_s": entry["benchmark_s"],
    }


def _provenance(
    facts: Mapping[str, Any],
    gpu: Mapping[str, str],
    settings: MixtureSettings,
    record_settings: KernelTunerSettings,
) -> dict[str, str]:
    provenance = {
        **cloud_provenance(settings),
        "kernel_tuner": kernel_tuner_version(),
        "driver": gpu.get("driver", ""),
        "launch": facts["launch"],
        **how_measured(facts, record_settings),
        "devices": str(len(record_settings.devices)),
    }
    return {key: value for key, value in provenance.items() if value}
