"""``llamea-gpu spaces record``: measure the configurations of a live kernel on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import AsJson, output_console, progress_line, step
from llamea_gpu.cli.text import cell
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import SpaceError
from llamea_gpu.recording._base import (
    HelionSettings,
    KernelTunerSettings,
    RecordOutcome,
    RecordProgress,
    RecordSettings,
)
from llamea_gpu.spaces.catalogue import check_cloud_name
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.recording import Recording

if TYPE_CHECKING:
    from llamea_gpu.frameworks.helion.static import StaticReport
    from llamea_gpu.recording.clouds import CloudOutcome, MixtureSettings
    from llamea_gpu.recording.helion.static_filter import KernelDescription


app = typer.Typer(no_args_is_help=True, help="Record a search space from a live kernel.")

Whole = Annotated[
    int | None,
    typer.Option(min=1, help="This many measurements of the whole space instead: a cloud."),
]
CloudSearchers = Annotated[
    list[str] | None,
    typer.Option("--searcher", help="With --whole: whose trajectories are part; repeatable."),
]
PointsFile = Annotated[
    Path | None,
    typer.Option(
        "--points", help="A cloud: measure these first; without --whole, nothing else. JSON lines."
    ),
]
# Of a recorder's settings, options that are not called as their field.
_NAMES = {"seconds": "--seconds", "devices": "--device"}


STATIC = "STATIC: compiled for a GPU that is not here, never launched. Not a measurement."
Script = Annotated[
    str, typer.Argument(help="Python file that defines helion_kernel(), or a shipped kernel.")
]
Shape = Annotated[str | None, typer.Option(help="One of the script's shapes; default: medium.")]
_HELION_NAMES = {
    **_NAMES,
    "compile_timeout_s": "--compile-timeout",
    "timing_timeout_s": "--timing-timeout",
}


@app.callback()
def _record() -> None:
    """Record a search space from a live kernel."""


@app.command("kernel-tuner")
@options_of(
    KernelTunerSettings, leave=("command", "sizes"), names={**_NAMES, "timeout_s": "--timeout"}
)
def kernel_tuner(
    given: dict[str, Any],
    script: Annotated[Path, typer.Argument(help="Python file that describes the kernel.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Native file to write.")],
    size: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, of the problem: an argument of the script's function."),
    ] = None,
    whole: Whole = None,
    searcher: CloudSearchers = None,
    points: PointsFile = None,
) -> None:
    """Record a Kernel Tuner kernel: every valid configuration, or a stratified sample.

    With --whole it is a cloud of a space that is too large to list. SCRIPT
    defines tune_kernel_arguments(), which returns the keyword arguments of
    tune_kernel; it is executed. Interrupted or killed, the same command
    continues where it was.
    """
    from llamea_gpu.frameworks.kernel_tuner.kernel_script import parse_sizes
    from llamea_gpu.recording.kernel_tuner.cloud import record_cloud
    from llamea_gpu.recording.kernel_tuner.record import record_kernel

    mixture = mixture_of(whole, searcher, points, given, ("sample",))
    settings = KernelTunerSettings(
        **given, sizes=parse_sizes(size or ()), command=command_line(script, output)
    )
    if mixture is not None:
        check_cloud_output(output)
        record_mixture(record_cloud, script, output, mixture, settings)
        return
    check_new_output(output)
    with progress_line(progress_text) as show:
        outcome = record_kernel(script, output, settings, show)
    print_outcome(output, outcome.recording, outcome, outcome.total)


def mixture_of(
    whole: int | None,
    searcher: list[str] | None,
    points: Path | None,
    overrides: Mapping[str, object],
    of_recordings: Sequence[str],
) -> MixtureSettings | None:
    """What a cloud is to hold; None where none is wanted.

    ``overrides`` are the settings that were typed, ``of_recordings`` those that a cloud does not
    have.

    Raises:
        SpaceError: options that mean nothing beside these, or without them; a file of points that
            cannot be read.
    """
    if whole is None and points is None:
        if searcher:
            raise SpaceError("searchers take part in clouds only: --searcher needs --whole N")
        return None
    wrong = [f"--{name.replace('_', '-')}" for name in of_recordings if overrides.get(name)]
    if wrong:
        raise SpaceError(f"a cloud has no grid and no sample, but got {', '.join(wrong)}")
    from llamea_gpu.recording.clouds import SEARCHERS, MixtureSettings
    from llamea_gpu.spaces.formats.cloud_lines import read_points

    listed_points = None if points is None else read_points(points)
    count = len(dict(listed_points.rows)) if listed_points is not None else 0
    return MixtureSettings(whole or count, tuple(searcher or SEARCHERS), points=listed_points)


def check_cloud_output(output: Path) -> None:
    """Refuse an output that is not called as clouds are, or exists without a journal beside it.

    Raises:
        SpaceError: it is one.
    """
    check_cloud_name(output)
    if not journal_path(output).exists():  # with a journal, it is a part to be completed
        check_new_output(output)


def print_outcome(
    output: Path,
    measurements: Recording | Cloud | None,
    outcome: RecordOutcome | CloudOutcome,
    total: int,
) -> None:
    """How measuring ended, of so many in all; ``measurements`` is what was written."""
    if measurements is not None:
        holds, best_ms = (
            (f"a cloud of {len(measurements)} measurements", measurements.best_ms)
            if isinstance(measurements, Cloud)
            else (f"{measurements.space.size} configurations", measurements.optimum_ms)
        )
        others = "".join(f", {k} {v:.6g} ms" for k, v in measurements.info.references_ms.items())
        typer.echo(
            f"{output}: {measurements.info.name}, {holds}, "
            f"{1 - measurements.ok.mean():.1%} failing, best {best_ms:.6g} ms{others}"
        )
    if outcome.done < total:
        typer.echo(
            f"{outcome.done} of {total} configurations measured, kept in {outcome.journal}: the "
            f"same command continues"
        )


def record_mixture(
    measure: Callable[..., CloudOutcome],
    script: Path,
    output: Path,
    mixture: MixtureSettings,
    settings: RecordSettings,
) -> None:
    """Record a cloud by ``measure``, a framework's own; exits with 130 after Ctrl-C."""
    with progress_line(progress_text) as show:
        outcome = measure(script, output, mixture, settings, show)
    for searcher, trouble in outcome.troubles.items():
        typer.secho(f"warning: {searcher}: {trouble}", fg=typer.colors.YELLOW, err=True)
    print_outcome(output, outcome.cloud, outcome, mixture.measurements)
    if outcome.interrupted:
        raise typer.Exit(130)


def check_new_output(output: Path) -> None:
    """Refuse an output that exists, before anything is measured.

    Raises:
        SpaceError: it exists, or its folder does not.
    """
    if output.exists() or not output.absolute().parent.is_dir():
        raise SpaceError(
            f"the output must be a new file in a folder that exists, but got {output}: name "
            f"another, or remove it"
        )


def command_line(*paths: Path) -> str:
    """What was typed, with these paths shortened to their names: others have other folders."""
    names = {str(path): path.name for path in paths}
    return shlex.join(["llamea-gpu", *(names.get(argument, argument) for argument in sys.argv[1:])])


def progress_text(at: RecordProgress) -> str:
    """How far a recording is, in a line."""
    left = "" if at.left_s is None else f", about {_duration(at.left_s)} left"
    spent = _duration(at.elapsed_s)
    return f"{at.done} of {at.total} measured, {at.failed} failing, {spent}{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


@app.command("helion")
@options_of(HelionSettings, leave=("command", "shape"), names=_HELION_NAMES)
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
        settings = HelionSettings(**{**TIMEOUTS_S, **given})
        record_mixture(record_cloud, path, written, mixture, settings)
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
    print_outcome(written, outcome.recording, outcome, outcome.total)


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
        description = describe_kernel(path, gpu, shape, draw=draw, seed=seed)
    configs = [description.default, *description.seeds, *description.drawn]
    kinds = ["default", *["seed"] * len(description.seeds), *["random"] * len(description.drawn)]
    with step(f"compiling {len(configs)} configurations for {gpu}"):
        reports = static_reports(path, gpu, configs, shape, workers=workers, timeout_s=timeout)
    if as_json:
        typer.echo(json.dumps(_as_json(description, kinds, configs, reports), indent=2))
        return
    _print(description, kinds, configs, reports)


def _as_json(
    description: KernelDescription,
    kinds: list[str],
    configs: list[Any],
    reports: list[StaticReport],
) -> dict[str, Any]:
    rows = zip(kinds, configs, reports, strict=True)
    return {
        "note": STATIC,
        "kernel": description.kernel,
        "shape": description.shape,
        "gpu": description.gpu,
        "slots": [asdict(slot) for slot in description.slots],
        "compiled": [{"kind": k, "config": dict(c), **asdict(r)} for k, c, r in rows],
    }


def _print(
    description: KernelDescription,
    kinds: list[str],
    configs: list[Any],
    reports: list[StaticReport],
) -> None:
    console = output_console()
    title = f"{description.kernel} {description.shape} on {description.gpu}"
    slots = Table("slot", "values", "default", title=cell(f"slots of {title}"))
    for slot in description.slots:
        values = ", ".join(map(str, slot.values)) or "many"
        slots.add_row(cell(slot.name), cell(values), cell(str(slot.default)))
    console.print(slots)
    table = Table(title=cell(f"static filter of {title}"), caption=STATIC)
    columns = ("kind", "fits", "registers", "spilled B", "shared B", "tensor memory", "warps")
    for column in (*columns, "differs from the default in, or why it does not fit"):
        table.add_column(column)
    for kind, config, report in zip(kinds, configs, reports, strict=True):
        changed = {k: v for k, v in config.items() if v != description.default.get(k)}
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
