"""``llamea-gpu spaces``: list, show, import, export, record, features, model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from llamea_gpu.cli import model as model_command
from llamea_gpu.cli import record
from llamea_gpu.cli.options import AsJson, SpacesPath, one_of, output_console, search_path
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.catalogue import (
    check_cloud_name,
    is_cloud,
    list_clouds,
    list_spaces,
    load_cloud,
    load_space,
)
from llamea_gpu.spaces.cloud import Cloud, merged
from llamea_gpu.spaces.features import (
    SpaceFeatures,
    WholeFeatures,
    compute_features,
    compute_whole_features,
)
from llamea_gpu.spaces.formats import (
    ExportFormat,
    export_cloud,
    export_recording,
    holds_cloud,
    import_cloud,
    import_recording,
    t1_beside,
)
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
from llamea_gpu.spaces.space import SearchSpace

app = typer.Typer(no_args_is_help=True, help="Recorded search spaces, and clouds of larger ones.")
app.add_typer(record.app, name="record")
app.command("describe-helion")(record.describe_helion)
app.command("model")(model_command.model)


Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.")]
Space = Annotated[str, typer.Argument(help="A shipped name, a file, or a name on the path.")]
_BEST = 5


@app.command("list")
def list_(spaces_path: SpacesPath = None, as_json: AsJson = False) -> None:
    """List the recordings that a name can select, and the clouds with their models' verdicts."""
    folders = search_path(spaces_path)
    entries = [(e, "recording", "") for e in list_spaces(folders)]
    entries += [(e, "cloud", model_command.card_state(e.path)) for e in list_clouds(folders)]
    if as_json:
        rows = [
            {"name": e.name, "kind": kind, "split": e.split, "model": state, "path": str(e.path)}
            for e, kind, state in entries
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("name", "kind", "split", "model", "file")
    for entry, kind, state in entries:
        table.add_row(cell(entry.name), kind, entry.split or "-", state, cell(entry.path.name))
    print_table(output_console(), table)


@app.command()
def show(space: Space, spaces_path: SpacesPath = None, as_json: AsJson = False) -> None:
    """Show a recording or a cloud: where it comes from, its parameters, what was best."""
    folders = search_path(spaces_path)
    summary = (
        _cloud_summary(load_cloud(space, folders))
        if is_cloud(space, folders)
        else _summary(load_space(space, folders))
    )
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print_summary(summary)


def _print_summary(summary: Mapping[str, Any]) -> None:
    console = output_console()
    lines = {key: summary[key] for key in ("name", "kernel", "device", "framework")}
    of_cloud = "kind" in summary
    lines |= _cloud_lines(summary) if of_cloud else _recording_lines(summary)
    for key, line in lines.items():
        console.print(f"[bold]{key:15}[/] {cell(str(line))}")
    times = {**summary["references_ms"], "best": summary["best_ms" if of_cloud else "optimum_ms"]}
    if summary["default_ms"] is not None:
        times["default"] = summary["default_ms"]
    for key, time_ms in times.items():
        console.print(f"[bold]{cell(key):15}[/] {time_ms:.6g} ms")
    table = Table("parameter", "values", "ordinal", "default", "best")
    best = summary["best"][0]["configuration"] if summary["best"] else {}
    default = summary["default_configuration"] or {}
    for parameter in summary["parameters"]:
        name, values = parameter["name"], ", ".join(map(str, parameter["values"]))
        own = (str(configuration.get(name, "-")) for configuration in (default, best))
        table.add_row(*map(cell, (name, values, "yes" if parameter["ordinal"] else "no", *own)))
    print_table(console, table)
    if of_cloud:  # configurations of a whole space take up a screen each
        return
    leaders = Table("time_ms", "configuration", title=f"best {len(summary['best'])}")
    for row in summary["best"]:
        pairs = ", ".join(f"{name}={value}" for name, value in row["configuration"].items())
        leaders.add_row(f"{row['time_ms']:.6g}", cell(pairs))
    print_table(console, leaders)


def _recording_lines(summary: Mapping[str, Any]) -> dict[str, str]:
    extent = "exhaustive" if summary["exhaustive"] else "a sample"
    return {
        "configurations": f"{summary['configurations']}, {extent}",
        "status": _counts(summary["status"]),
    }


def _cloud_lines(summary: Mapping[str, Any]) -> dict[str, str]:
    noise, controls = summary["noise"], summary["controls"]
    lines = {
        "shape": summary["shape"],
        "measurements": f"{summary['measurements']} of {summary['configurations']} "
        f"configurations, {summary['codes']} codes, {len(summary['runs'])} runs: a cloud, the "
        f"whole space is not listed",
        "status": _counts(summary["status"]),
        "how": _counts(summary["how"]),
        "recipe": f"{summary['recipe']} of its model",
        "noise": "not known: nothing was timed twice",
    }
    if noise["repeated"]:
        lines["noise"] = (
            f"{noise['repeated']} configurations or codes timed {noise['timings']} times: from "
            f"least to most {noise['median']:.2%} in the median, {noise['percentile_95']:.1%} in "
            f"5 %"
        )
    if controls["count"]:
        lines["controls"] = (
            f"the default timed {controls['count']} times in between: {controls['least_ms']:.6g} "
            f"to {controls['most_ms']:.6g} ms"
        )
    return lines


def _summary(recording: Recording) -> dict[str, Any]:
    space = recording.space
    order = np.argsort(recording.time_ms, kind="stable")[:_BEST]
    return {
        **_described(recording.info, space),
        "configurations": space.size,
        "exhaustive": recording.info.exhaustive,
        "status": _status_counts(recording.status),
        "optimum_ms": recording.optimum_ms,
        "default_ms": recording.default_ms,
        "best": [
            {
                "time_ms": float(recording.time_ms[row]),
                "configuration": space.value_dict(space.configuration(int(row))),
            }
            for row in order
            if np.isfinite(recording.time_ms[row])
        ],
    }


def _check_output(output: Path, *, force: bool) -> None:
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise SpaceError(f"the output must be a file in a folder that exists, but got {output}")
    if output.exists() and not force:
        raise SpaceError(f"{output} exists already: name another file, or give --force")


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="T4, Kernel Tuner cache, Helion trace; or clouds of one kernel, which are merged.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Native file to write.")],
    t1: Annotated[
        Path | None, typer.Option(help="T1 file with parameters and constraints.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name; default: from the file.")] = None,
    force: Force = False,
) -> None:
    """Convert a recording of any known format, or clouds, to the native one."""
    _check_output(output, force=force)
    clouds = [holds_cloud(file) for file in files]
    if all(clouds):
        _import_clouds(files, output, name)
        return
    if any(clouds) or len(files) > 1:
        raise SpaceError(
            "an import takes one recording, or clouds of one kernel, but got "
            f"{len(files)} files of which {sum(clouds)} are clouds: import them one by one"
        )
    _import_recording(files[0], output, t1, name)


def _import_recording(file: Path, output: Path, t1: Path | None, name: str | None) -> None:
    if t1 is None and (t1 := t1_beside(file)) is not None:
        typer.echo(f"parameters and constraints from {t1}", err=True)
    recording, warnings = import_recording(file, t1=t1, name=name)
    _warn(warnings)
    export_recording(recording, output, "native")
    typer.echo(f"{output}: {recording.info.name}, {recording.space.size} configurations")


def _import_clouds(files: Sequence[Path], output: Path, name: str | None) -> None:
    check_cloud_name(output)
    clouds = []
    for file in files:
        cloud, warnings = import_cloud(file, name=name)
        _warn(f"{file}: {warning}" for warning in warnings)
        clouds.append(cloud)
    union = merged(clouds)
    export_cloud(union, output)
    typer.echo(f"{output}: {union.info.name}, a cloud of {len(union)} measurements")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW, err=True)


@app.command()
def export(
    space: Space,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    to: Annotated[str, one_of(get_args(ExportFormat), "Format.")],
    spaces_path: SpacesPath = None,
    force: Force = False,
) -> None:
    """Write a recording as T4, as a Kernel Tuner cache, or native."""
    _check_output(output, force=force)
    recording = load_space(space, search_path(spaces_path))
    export_recording(recording, output, cast("ExportFormat", to))
    typer.echo(f"{output}: {recording.info.name}, {recording.space.size} configurations")


@app.command()
def features(space: Space, spaces_path: SpacesPath = None, as_json: AsJson = False) -> None:
    """Describe the landscape of a recording in numbers; of a cloud, what it tells of its space."""
    folders = search_path(spaces_path)
    landscape: SpaceFeatures | WholeFeatures = (
        compute_whole_features(load_cloud(space, folders))
        if is_cloud(space, folders)
        else compute_features(load_space(space, folders))
    )
    if as_json:
        typer.echo(json.dumps(asdict(landscape), indent=2))
        return
    _print_features(landscape)


def _print_features(landscape: SpaceFeatures | WholeFeatures) -> None:
    console = output_console()
    for key, value in asdict(landscape).items():
        if key in ("parameters", "interactions"):
            continue
        console.print(f"[bold]{key:28}[/] {cell(_short(value))}")
    table = Table("parameter", "values", "ordinal", "main effect")
    for parameter in landscape.parameters:
        share = f"{parameter.main_effect:.1%}"
        kind = "yes" if parameter.ordinal else "no"
        table.add_row(cell(parameter.name), str(parameter.cardinality), kind, share)
    print_table(console, table)
    interactions = landscape.interactions if isinstance(landscape, SpaceFeatures) else ()
    for first, second, explained in interactions:
        console.print(f"interaction {cell(first)} x {cell(second)}: {explained:.1%}")


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_short(item)}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(_short(item) for item in value)
    return str(value)


def _described(info: RecordingInfo, of: Cloud | SearchSpace) -> dict[str, Any]:
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


def _status_counts(statuses: npt.NDArray[np.uint8]) -> dict[str, int]:
    """How often each status came that did."""
    counts = np.bincount(statuses, minlength=len(STATUSES))
    return {name: int(n) for name, n in zip(STATUSES, counts, strict=True) if n}


def _cloud_summary(cloud: Cloud) -> dict[str, Any]:
    """What ``spaces show`` says of a cloud, as JSON values."""
    return {
        "kind": "cloud",
        **_described(cloud.info, cloud),
        "shape": cloud.shape,
        "recipe": cloud.recipe,
        "measurements": len(cloud),
        "configurations": len(np.unique(cloud.configurations, axis=0)),
        "codes": len(set(cloud.source.tolist()) - {""}),
        "runs": [dict(run) for run in cloud.runs],
        "status": _status_counts(cloud.statuses),
        "how": dict(Counter(cloud.how.tolist()).most_common()),
        "best_ms": cloud.best_ms,
        "default_ms": cloud.default_ms,
        "noise": _noise(cloud),
        "controls": _controls(cloud),
        "best": _best(cloud),
    }


def _best(cloud: Cloud) -> list[dict[str, Any]]:
    """The best configurations by the median of their times, with how often they were timed."""
    ok = np.flatnonzero(cloud.ok)
    configurations, group = np.unique(cloud.configurations[ok], axis=0, return_inverse=True)
    times = cloud.times_ms[ok]
    rows = [times[group.reshape(-1) == g] for g in range(len(configurations))]
    medians = np.array([np.median(row) for row in rows])
    return [
        {
            "time_ms": float(medians[g]),
            "timed": len(rows[g]),
            "configuration": cloud.value_dict(configurations[g].tolist()),
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


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name or '(not known)'} {n}" for name, n in counts.items())
