"""``llamea-gpu spaces record helion`` and ``spaces describe-helion``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import AsJson, output_console, progress_line, step
from llamea_gpu.cli.record import (
    NAMES,
    CloudSearchers,
    PointsFile,
    Whole,
    check_cloud_output,
    check_new_output,
    command_line,
    mixture_of,
    print_cloud_outcome,
    print_outcome,
    progress_text,
)
from llamea_gpu.cli.text import cell
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import SpaceError
from llamea_gpu.recording._base import HelionSettings

if TYPE_CHECKING:
    from llamea_gpu.frameworks.helion.static import StaticReport
    from llamea_gpu.recording.helion.static_filter import KernelDescription

STATIC = "STATIC: compiled for a GPU that is not here, never launched. Not a measurement."

Script = Annotated[
    str, typer.Argument(help="Python file that defines helion_kernel(), or a shipped kernel.")
]
Shape = Annotated[str | None, typer.Option(help="One of the script's shapes; default: medium.")]

_NAMES = {
    **NAMES,
    "compile_timeout_s": "--compile-timeout",
    "timing_timeout_s": "--timing-timeout",
}


@options_of(HelionSettings, leave=("command", "shape"), names=_NAMES)
def record_helion(
    given: dict[str, Any],
    script: Script,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Native file to write.")
    ] = None,
    save_grid: Annotated[
        Path | None, typer.Option(help="Write the grid to this file and measure nothing.")
    ] = None,
    whole: Whole = None,
    searcher: CloudSearchers = None,
    points: PointsFile = None,
    shape: Shape = None,
) -> None:
    """Record a Helion kernel: every point of a grid over its configuration's slots.

    With --whole it is a cloud of the whole space instead: measurements by a
    mixture of searchers, steps from the best, crosses and random
    configurations. SCRIPT is executed. Interrupted or killed, the same command
    continues where it was.
    """
    from llamea_gpu.frameworks.helion.kernel_script import find_script

    typed = {**given, "save_grid": save_grid}
    mixture = mixture_of(whole, searcher, points, typed, ("grid", "auto", "save_grid", "partial"))
    path = find_script(script)
    written = output or save_grid
    if written is None or (mixture is not None and output is None):
        raise SpaceError("a recording needs a file to write: name it with -o")
    given |= {"shape": shape, "command": command_line(path, written)}
    if mixture is not None:
        from llamea_gpu.recording.helion.cloud import TIMEOUTS_S, record_cloud

        check_cloud_output(written)
        with progress_line(progress_text) as show:
            settings = HelionSettings(**{**TIMEOUTS_S, **given})
            cloud = record_cloud(path, written, mixture, settings, show)
        print_cloud_outcome(written, cloud, mixture.measurements)
        return

    from llamea_gpu.recording.helion.record import plan_recording, record_kernel

    settings = HelionSettings(**given)
    if save_grid is not None:
        check_new_output(save_grid)
        proposed = plan_recording(path, settings).grid
        save_grid.write_text(proposed.to_toml(), encoding="utf-8")
        typer.echo(f"{save_grid}: {proposed.size} points")
        return
    if not journal_path(written).exists():  # with a journal, it is a part to be completed
        check_new_output(written)
    with progress_line(progress_text) as show:
        outcome = record_kernel(path, written, settings, show)
    print_outcome(written, outcome)


def describe_helion(
    script: Script,
    gpu: Annotated[
        Literal["B200", "H200", "H100", "A100"],
        typer.Option(help="The GPU, which need not be here."),
    ],
    shape: Shape = None,
    draw: Annotated[
        int, typer.Option("--compile", min=0, help="Also compile this many random configurations.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Compiling processes.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to compile one.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the random configurations.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a Helion kernel's configuration space on a GPU, and which configurations fit there.

    Needs no GPU. SCRIPT is executed. What is compiled is the default
    configuration, Helion's seeds and random ones: registers, shared memory, and
    whether a block can be launched.
    """
    from llamea_gpu.frameworks.helion.kernel_script import find_script
    from llamea_gpu.recording.helion.static_filter import describe_kernel, static_reports

    path = find_script(script)
    with step("importing Helion and reading the kernel's configuration space"):
        found = describe_kernel(path, gpu, shape, draw=draw, seed=seed)
    configs = [found.default, *found.seeds, *found.drawn]
    kinds = ["default", *["seed"] * len(found.seeds), *["random"] * len(found.drawn)]
    with step(f"compiling {len(configs)} configurations for {gpu}"):
        reports = static_reports(path, gpu, configs, shape, workers=workers, timeout_s=timeout)
    if as_json:
        typer.echo(json.dumps(_as_json(found, kinds, configs, reports), indent=2))
        return
    _print(found, kinds, configs, reports)


def _as_json(
    found: KernelDescription,
    kinds: list[str],
    configs: list[Any],
    reports: list[StaticReport],
) -> dict[str, Any]:
    rows = zip(kinds, configs, reports, strict=True)
    return {
        "note": STATIC,
        "kernel": found.kernel,
        "shape": found.shape,
        "gpu": found.gpu,
        "slots": [asdict(slot) for slot in found.slots],
        "compiled": [{"kind": k, "config": dict(c), **asdict(r)} for k, c, r in rows],
    }


def _print(
    found: KernelDescription,
    kinds: list[str],
    configs: list[Any],
    reports: list[StaticReport],
) -> None:
    console = output_console()
    title = f"{found.kernel} {found.shape} on {found.gpu}"
    slots = Table("slot", "values", "default", title=cell(f"slots of {title}"))
    for slot in found.slots:
        values = ", ".join(map(str, slot.values)) or "many"
        slots.add_row(cell(slot.name), cell(values), cell(str(slot.default)))
    console.print(slots)
    table = Table(title=cell(f"static filter of {title}"), caption=STATIC)
    columns = ("kind", "fits", "registers", "spilled B", "shared B", "tensor memory", "warps")
    for column in (*columns, "differs from the default in, or why it does not fit"):
        table.add_column(column)
    for kind, config, report in zip(kinds, configs, reports, strict=True):
        changed = {k: v for k, v in config.items() if v != found.default.get(k)}
        numbers = (
            report.registers,
            report.spill_bytes,
            report.shared_bytes,
            report.tensor_memory_columns,
            report.num_warps,
        )
        table.add_row(
            kind,
            "yes" if report.fits else "[red]no[/]",
            *map(str, numbers),
            cell(report.reason or ", ".join(f"{k}={v}" for k, v in changed.items())),
        )
    console.print(table)
