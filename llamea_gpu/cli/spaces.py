"""``llamea-gpu spaces``: list, show, import, export, record, features, model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from llamea_gpu.cli import model as model_command
from llamea_gpu.cli import record, record_helion
from llamea_gpu.cli.clouds import cloud_summary, described, print_cloud, status_counts
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
from llamea_gpu.spaces.cloud import merged
from llamea_gpu.spaces.features import (
    SpaceFeatures,
    WholeFeatures,
    compute_features,
    compute_whole_features,
)
from llamea_gpu.spaces.formats import (
    export_cloud,
    export_recording,
    holds_cloud,
    import_cloud,
    import_recording,
    takes_t1,
)
from llamea_gpu.spaces.recording import Recording

app = typer.Typer(no_args_is_help=True, help="Recorded search spaces, and clouds of larger ones.")
record.app.command("helion")(record_helion.record_helion)
app.add_typer(record.app, name="record")
app.command("describe-helion")(record_helion.describe_helion)
app.command("model")(model_command.model)


class Format(str, Enum):
    """Formats that a recording can be written in."""

    NATIVE = "native"
    T4 = "t4"
    KERNEL_TUNER = "kernel-tuner"


T1_NAME = "T1.json"
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.")]
Space = Annotated[str, typer.Argument(help="A shipped name, a file, or a name on the path.")]


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
    if is_cloud(space, folders):
        cloud = load_cloud(space, folders)
        if as_json:
            typer.echo(json.dumps(cloud_summary(cloud), indent=2))
        else:
            print_cloud(cloud)
        return
    summary = _summary(load_space(space, folders))
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    console = output_console()
    for key in ("name", "kernel", "device", "framework", "configurations", "exhaustive", "status"):
        console.print(f"[bold]{key:15}[/] {cell(str(summary[key]))}")
    for key, value in {**summary["references_ms"], "best": summary["optimum_ms"]}.items():
        console.print(f"[bold]{cell(key):15}[/] {value:.6g} ms")
    table = Table("parameter", "values", "ordinal")
    for parameter in summary["parameters"]:
        values = ", ".join(str(value) for value in parameter["values"])
        table.add_row(
            cell(parameter["name"]), cell(values), "yes" if parameter["ordinal"] else "no"
        )
    print_table(console, table)
    best = Table("time_ms", "configuration", title="best five")
    for row in summary["best"]:
        pairs = ", ".join(f"{name}={value}" for name, value in row["configuration"].items())
        best.add_row(f"{row['time_ms']:.6g}", cell(pairs))
    print_table(console, best)


def _summary(recording: Recording) -> dict[str, Any]:
    space = recording.space
    order = np.argsort(recording.time_ms, kind="stable")[:5]
    return {
        **described(recording.info, space),
        "configurations": space.size,
        "exhaustive": recording.info.exhaustive,
        "status": status_counts(recording.status),
        "optimum_ms": recording.optimum_ms,
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
    beside = file.parent / T1_NAME
    if t1 is None and beside.is_file() and takes_t1(file):
        typer.echo(f"parameters and constraints from {beside}", err=True)
        t1 = beside
    recording, warnings = import_recording(file, t1=t1, name=name)
    _warn(warnings)
    export_recording(recording, output, Format.NATIVE.value)
    typer.echo(f"{output}: {recording.info.name}, {recording.space.size} configurations")


def _import_clouds(files: Sequence[Path], output: Path, name: str | None) -> None:
    check_cloud_name(output)
    clouds = []
    for file in files:
        cloud, warnings = import_cloud(file, name=name)
        _warn(f"{file}: {warning}" for warning in warnings)
        clouds.append(cloud)
    found = merged(clouds)
    export_cloud(found, output)
    typer.echo(f"{output}: {found.info.name}, a cloud of {len(found)} measurements")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW, err=True)


@app.command()
def export(
    space: Space,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    to: Annotated[Format, one_of(Format, "Format.")],
    spaces_path: SpacesPath = None,
    force: Force = False,
) -> None:
    """Write a recording as T4, as a Kernel Tuner cache, or native."""
    _check_output(output, force=force)
    recording = load_space(space, search_path(spaces_path))
    export_recording(recording, output, to.value)
    typer.echo(f"{output}: {recording.info.name}, {recording.space.size} configurations")


@app.command()
def features(space: Space, spaces_path: SpacesPath = None, as_json: AsJson = False) -> None:
    """Describe the landscape of a recording in numbers; of a cloud, what it tells of its space."""
    folders = search_path(spaces_path)
    found: SpaceFeatures | WholeFeatures = (
        compute_whole_features(load_cloud(space, folders))
        if is_cloud(space, folders)
        else compute_features(load_space(space, folders))
    )
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    _print_features(found)


def _print_features(found: SpaceFeatures | WholeFeatures) -> None:
    console = output_console()
    for key, value in asdict(found).items():
        if key in ("parameters", "interactions"):
            continue
        console.print(f"[bold]{key:28}[/] {cell(_short(value))}")
    table = Table("parameter", "values", "ordinal", "main effect")
    for parameter in found.parameters:
        share = f"{parameter.main_effect:.1%}"
        kind = "yes" if parameter.ordinal else "no"
        table.add_row(cell(parameter.name), str(parameter.cardinality), kind, share)
    print_table(console, table)
    interactions = found.interactions if isinstance(found, SpaceFeatures) else ()
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
