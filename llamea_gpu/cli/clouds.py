"""How a cloud of a whole space is described on the terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from llamea_gpu.cli.options import output_console
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.recording import STATUSES, RecordingInfo
from llamea_gpu.spaces.space import SearchSpace

_BEST = 5


def described(info: RecordingInfo, of: Cloud | SearchSpace) -> dict[str, Any]:
    """What ``spaces show`` says of a recording and of a cloud alike, as JSON values."""
    return {
        "name": info.name,
        "kernel": info.kernel,
        "device": info.device,
        "framework": info.framework,
        "parallel_workers": info.parallel_workers,
        "references_ms": dict(info.references_ms),
        "default_configuration": info.default_configuration and dict(info.default_configuration),
        "arguments": [dict(argument) for argument in info.arguments],
        "provenance": dict(info.provenance),
        "parameters": [
            {"name": name, "values": list(values), "ordinal": ordinal}
            for name, values, ordinal in zip(of.names, of.values, of.ordinal, strict=True)
        ],
    }


def status_counts(statuses: npt.NDArray[np.uint8]) -> dict[str, int]:
    """How often each status came that did."""
    counts = np.bincount(statuses, minlength=len(STATUSES))
    return {name: int(n) for name, n in zip(STATUSES, counts, strict=True) if n}


def cloud_summary(cloud: Cloud) -> dict[str, Any]:
    """What ``spaces show`` says of a cloud, as JSON values."""
    return {
        "kind": "cloud",
        **described(cloud.info, cloud),
        "shape": cloud.shape,
        "measurements": len(cloud),
        "configurations": len(np.unique(cloud.configurations, axis=0)),
        "codes": len(set(cloud.source.tolist()) - {""}),
        "runs": [dict(run) for run in cloud.runs],
        "status": status_counts(cloud.statuses),
        "how": dict(Counter(cloud.how.tolist()).most_common()),
        "best_ms": cloud.best_ms,
        "default_ms": cloud.default_ms,
        "noise": _noise(cloud),
        "controls": _controls(cloud),
        "best": _best(cloud),
    }


def print_cloud(cloud: Cloud) -> None:
    """Describe a cloud to a person."""
    summary = cloud_summary(cloud)
    console = output_console()
    lines = {key: summary[key] for key in ("name", "kernel", "shape", "device", "framework")}
    lines["measurements"] = (
        f"{len(cloud)} of {summary['configurations']} configurations, {summary['codes']} codes, "
        f"{len(cloud.runs)} runs: a cloud, the whole space is not listed"
    )
    lines |= {key: _counts(summary[key]) for key in ("status", "how")}
    lines["noise"] = _noise_text(summary["noise"])
    if (controls := summary["controls"])["count"]:
        lines["controls"] = (
            f"the default timed {controls['count']} times in between: {controls['least_ms']:.6g} "
            f"to {controls['most_ms']:.6g} ms"
        )
    for key, value in lines.items():
        console.print(f"[bold]{key:15}[/] {cell(str(value))}")
    times = {**summary["references_ms"], "best": summary["best_ms"]}
    if summary["default_ms"] is not None:
        times["default"] = summary["default_ms"]
    for key, value in times.items():
        console.print(f"[bold]{cell(key):15}[/] {value:.6g} ms")
    table = Table("parameter", "values", "ordinal", "default", "best")
    best = summary["best"][0]["configuration"] if summary["best"] else {}
    default = summary["default_configuration"] or {}
    for parameter in summary["parameters"]:
        name = parameter["name"]
        cells = (", ".join(map(str, parameter["values"])), "yes" if parameter["ordinal"] else "no")
        shown = (str(found[name]) if name in found else "-" for found in (default, best))
        table.add_row(cell(name), cell(cells[0]), cells[1], *map(cell, shown))
    print_table(console, table)


def _best(cloud: Cloud) -> list[dict[str, Any]]:
    """The best configurations by the median of their times, with how often they were timed."""
    ok = np.flatnonzero(cloud.ok)
    found, group = np.unique(cloud.configurations[ok], axis=0, return_inverse=True)
    times = cloud.times_ms[ok]
    rows = [times[group.reshape(-1) == g] for g in range(len(found))]
    medians = np.array([np.median(row) for row in rows])
    return [
        {
            "time_ms": float(medians[g]),
            "timed": len(rows[g]),
            "configuration": cloud.value_dict(found[g].tolist()),
        }
        for g in np.argsort(medians, kind="stable")[:_BEST]
    ]


def _controls(cloud: Cloud) -> dict[str, float | int]:
    """What the default took now and then: a drift of the machine would show."""
    times = cloud.control_ms[~np.isnan(cloud.control_ms)]
    if not len(times):
        return {"count": 0}
    return {
        "count": len(times),
        "least_ms": float(times.min()),
        "most_ms": float(times.max()),
    }


def _noise(cloud: Cloud) -> dict[str, float | int]:
    """What several timings of the same configuration or code differ by, relative to their mean."""
    groups = cloud.repeats()
    if not groups:
        return {"repeated": 0, "timings": 0}
    spreads = [np.ptp(cloud.times_ms[rows]) / cloud.times_ms[rows].mean() for rows in groups]
    half, most = np.percentile(spreads, (50, 95))
    return {
        "repeated": len(groups),
        "timings": sum(map(len, groups)),
        "median": float(half),
        "percentile_95": float(most),
    }


def _noise_text(noise: dict[str, float | int]) -> str:
    if not noise["repeated"]:
        return "not known: nothing was timed twice"
    return (
        f"{noise['repeated']} configurations or codes timed {noise['timings']} times: from least "
        f"to most {noise['median']:.2%} in the median, {noise['percentile_95']:.1%} in 5 %"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name or '(not known)'} {n}" for name, n in counts.items())
