"""From a journal of measurements to a recording, with everything that says how it came about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np

from llamea_gpu import __version__
from llamea_gpu.errors import RecordingError
from llamea_gpu.recording.kernel_tuner.settings import RecordSettings
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo

# The device itself cannot launch it (too many threads): not a configuration of this space.
LEFT_OUT = "invalid"


def kernel_tuner_version() -> str:
    """Of the Kernel Tuner that is installed.

    Raises:
        SearcherError: none is.
    """
    return require("kernel_tuner", "kernel-tuner", "recording a Kernel Tuner kernel")


def assemble(
    facts: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    settings: RecordSettings,
    sample: tuple[int, int] | None,
) -> Recording:
    """Build the recording of a complete journal.

    Args:
        facts: what the measuring process said about space, kernel and device.
        entries: the journal's measurements (in any order) and notes of clocks.
        settings: as recorded with.
        sample: (number of valid configurations, seed) when not all were to be measured.

    Raises:
        RecordingError: nothing but configurations that the device cannot launch.
    """
    rows = [e for e in entries if "configuration" in e and e["status"] != LEFT_OUT]
    if not rows:
        raise RecordingError(
            "a recording must have configurations that the device can launch, but none can be: "
            "restrict block_size_x * block_size_y * block_size_z to what it allows"
        )
    return Recording.from_rows(
        facts["names"],
        facts["values"],
        np.array([e["configuration"] for e in rows]),
        [np.inf if e["time_ms"] is None else e["time_ms"] for e in rows],
        [e["compile_s"] for e in rows],
        [e["benchmark_s"] for e in rows],
        [STATUSES.index(e["status"]) for e in rows],
        RecordingInfo(
            name=settings.name or facts["name"],
            kernel=facts["kernel"],
            device=facts["device"],
            framework=f"kernel_tuner ({facts['language']})",
            kernel_source=facts["kernel_source"],
            arguments=tuple(facts["arguments"]),
            default_configuration=facts["default_configuration"],
            provenance=_provenance(facts, entries, settings, sample),
            exhaustive=sample is None,
        ),
    )


def _provenance(
    facts: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    settings: RecordSettings,
    sample: tuple[int, int] | None,
) -> dict[str, str]:
    measured = [e for e in entries if "configuration" in e]
    counts = Counter(e["status"] for e in measured)
    environment = facts["environment"]
    clocks = [e["clocks"] for e in entries if e.get("clocks")]
    left_out = counts[LEFT_OUT]
    found = {
        "source": f"recorded by llamea_gpu {__version__}, Kernel Tuner {kernel_tuner_version()}",
        "command": settings.command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "note": facts["note"],
        "constraints": "\n".join(facts["constraints"]),
        "problem_size": facts["problem_size"],
        "compiler_options": facts["compiler_options"],
        "iterations": f"{settings.iterations}; time_ms is their mean",
        "spread": _spread(measured),
        "compile_s": f"compile_time, no compiler cache, {settings.compilers} side by side",
        "benchmark_s": "to check the result and to benchmark, without waiting for the device",
        "verified": "every result compared with a reference" if facts["verified"] else "no",
        "order": f"random, seed {settings.seed}",
        "sample": "" if sample is None else _sample_text(len(measured), *sample),
        "timeout_s": f"{settings.timeout_s:g}",
        "left_out": f"{left_out} configurations that the device cannot launch" if left_out else "",
        "devices": str(len(settings.devices)) if len(settings.devices) > 1 else "",
        "compute_capability": environment.get("compute_capability", ""),
        "cuda": environment.get("cuda_version", ""),
        "compiler": environment.get("CC Version", ""),
        "gpu_at_start": json.dumps(clocks[0]) if clocks else "",
        "gpu_at_end": json.dumps(clocks[-1]) if clocks else "",
    }
    return {key: value for key, value in found.items() if value}


def _sample_text(measured: int, valid: int, seed: int) -> str:
    return (
        f"stratified sample of {measured} of {valid} valid configurations, seed {seed}; the "
        f"space holds the sampled ones only"
    )


def _spread(measured: Sequence[Mapping[str, Any]]) -> str:
    spreads = [e["spread"] for e in measured if e["spread"] is not None]
    if not spreads:
        return ""
    half, most = np.percentile(spreads, (50, 95))
    return (
        f"standard deviation of one reading relative to the mean: median {half:.2%}, "
        f"95th percentile {most:.2%}"
    )
