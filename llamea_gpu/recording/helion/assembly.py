"""From a journal of a Helion kernel's measurements to a recording that says how it came about."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np

from llamea_gpu import __version__
from llamea_gpu.recording._base import HelionSettings
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo

if TYPE_CHECKING:
    from llamea_gpu.recording.helion.record import RecordingPlan


def assemble(
    plan: RecordingPlan,
    entries: Sequence[Mapping[str, Any]],
    settings: HelionSettings,
    compilers: int,
    devices: int,
) -> Recording:
    """Build the recording of a journal; of a part of the grid when the journal has a part.

    Points whose generated code is the same have one true time to compile, that of the first one:
    the others found it in the cache, and get it, too.

    Args:
        plan: what was to be measured.
        entries: the journal's measurements and notes, in any order; at least one measurement.
        settings: as recorded with.
        compilers: compiling processes.
        devices: timing processes.
    """
    rows = [entry for entry in entries if "point" in entry]
    grid = plan.grid
    facts = _facts(entries)
    return Recording.from_rows(
        grid.names,
        grid.shown_values(),
        np.array([grid.indices(entry["point"]) for entry in rows]),
        [entry.get("time_ms", np.inf) if entry["status"] == "ok" else np.inf for entry in rows],
        _compile_seconds(rows),
        [entry["benchmark_s"] for entry in rows],
        [STATUSES.index(entry["status"]) for entry in rows],
        RecordingInfo(
            name=plan.name,
            kernel=plan.kernel,
            device=plan.device,
            framework=f"helion {plan.versions['helion']}",
            kernel_source=plan.kernel_source,
            arguments=plan.arguments,
            default_configuration=grid.default_point(plan.default_config),
            references_ms={"torch": facts["reference_ms"], "helion_default": facts["default_ms"]},
            parallel_workers=compilers,
            provenance=_provenance(plan, entries, settings, (compilers, devices)),
            exhaustive=len(rows) == grid.size,
        ),
    )


def _facts(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the timing processes said, of the last session."""
    return [entry["facts"] for entry in entries if "facts" in entry][-1]  # type: ignore[no-any-return]


def _compile_seconds(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    rows = list(rows)
    most: dict[str, float] = {}
    for row in rows:
        if "source" in row:
            most[row["source"]] = max(most.get(row["source"], 0.0), row["compile_s"])
    return [most.get(row.get("source", ""), row["compile_s"]) for row in rows]


def _provenance(
    plan: RecordingPlan,
    entries: Sequence[Mapping[str, Any]],
    settings: HelionSettings,
    processes: tuple[int, int],
) -> dict[str, str]:
    rows = [entry for entry in entries if "point" in entry]
    facts = _facts(entries)
    clocks = [entry["clocks"] for entry in entries if entry.get("clocks")]
    measured, size = len(rows), plan.grid.size
    compilers, devices = processes
    codes = len({row["source"] for row in rows if "source" in row})
    provenance = {
        "source": f"recorded by llamea_gpu {__version__}",
        "command": settings.command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        **plan.versions,
        "cuda": facts["cuda"],
        "compute_capability": facts["capability"],
        "multiprocessors": str(facts["multiprocessors"]),
        "default_config": json.dumps(plan.default_config),
        "relative_error_of_default": f"{facts['relative_error']:.3g}",
        "accuracy": "every result compared element by element with the default configuration's, "
        "that one with the reference",
        "time_ms": "median of single launches between CUDA events, level-2 cache overwritten before"
        " each",
        "spread": _spread(rows),
        "control_ms": _control(rows, facts["default_ms"]),
        "compile_s": f"cold cache, {compilers} processes side by side",
        "benchmark_s": "load, check and time; the machine code comes from the compiling process",
        "first_launch_s": _percentiles([row["first_s"] for row in rows if "first_s" in row]),
        "devices": str(devices) if devices > 1 else "",
        "distinct_codes": f"{codes} for {sum('source' in row for row in rows)} points",
        "order": f"random, seed {settings.seed}",
        "sample": "" if measured == size else f"random sample of {measured} of {size} grid points",
        "compile_timeout_s": f"{settings.compile_timeout_s:g}",
        "timing_timeout_s": f"{settings.timing_timeout_s:g}",
        "gpu_at_start": json.dumps(clocks[0]) if clocks else "",
        "gpu_at_end": json.dumps(clocks[-1]) if clocks else "",
        "failures": _failures(rows),
    }
    return {key: value for key, value in provenance.items() if value}


def _spread(rows: Iterable[Mapping[str, Any]]) -> str:
    spreads = [(r["high_ms"] - r["low_ms"]) / r["time_ms"] for r in rows if "high_ms" in r]
    if not spreads:
        return ""
    half, most = np.percentile(spreads, (50, 95))
    return (
        f"interquartile range of the launches of one configuration relative to the median: "
        f"median {half:.2%}, 95th percentile {most:.2%}"
    )


def _percentiles(seconds: Sequence[float]) -> str:
    """Of the first launch: a recorder whose timing process compiled again would show here."""
    if not seconds:
        return ""
    half, most = np.percentile(seconds, (50, 95))
    return f"loading the machine code included: median {half:.3g}, 95th percentile {most:.3g}"


def _control(rows: Iterable[Mapping[str, Any]], default_ms: float) -> str:
    times = [default_ms, *(row["control_ms"] for row in rows if "control_ms" in row)]
    if len(times) < 2:
        return ""
    return (
        f"the default configuration, timed {len(times)} times from start to end: "
        f"{min(times):.5g} to {max(times):.5g} ms"
    )


def _failures(rows: Iterable[Mapping[str, Any]]) -> str:
    """The most frequent messages, with how often."""
    counts = Counter(row.get("message", "")[:120] for row in rows if row["status"] != "ok")
    return "\n".join(f"{count}x {message}" for message, count in counts.most_common(5))
