"""``llamea-gpu spaces record``: measure the configurations of a live kernel on this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import progress_line
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import SpaceError
from llamea_gpu.recording._base import KernelTunerSettings, RecordOutcome, RecordProgress
from llamea_gpu.spaces.catalogue import check_cloud_name

if TYPE_CHECKING:
    from llamea_gpu.recording.clouds import CloudOutcome, MixtureSettings

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
NAMES = {"seconds": "--seconds", "devices": "--device"}


@app.callback()
def _record() -> None:
    """Record a search space from a live kernel."""


@app.command("kernel-tuner")
@options_of(
    KernelTunerSettings, leave=("command", "sizes"), names={**NAMES, "timeout_s": "--timeout"}
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
        with progress_line(progress_text) as show:
            cloud = record_cloud(script, output, mixture, settings, show)
        print_cloud_outcome(output, cloud, mixture.measurements)
        return
    check_new_output(output)
    with progress_line(progress_text) as show:
        outcome = record_kernel(script, output, settings, show)
    print_outcome(output, outcome)


def print_outcome(output: Path, outcome: RecordOutcome) -> None:
    """How a recording ended."""
    if outcome.recording is not None:
        found = outcome.recording
        others = "".join(f", {k} {v:.6g} ms" for k, v in found.info.references_ms.items())
        typer.echo(
            f"{output}: {found.info.name}, {found.space.size} configurations, "
            f"{1 - found.ok.mean():.1%} failing, best {found.optimum_ms:.6g} ms{others}"
        )
    if outcome.done < outcome.total:
        typer.echo(
            f"{outcome.done} of {outcome.total} configurations measured, kept in "
            f"{outcome.journal}: the same command continues"
        )


def mixture_of(
    whole: int | None,
    searcher: list[str] | None,
    points: Path | None,
    given: Mapping[str, object],
    of_recordings: Sequence[str],
) -> MixtureSettings | None:
    """What a cloud is to hold; None where none is wanted.

    ``given`` are the settings that were typed, ``of_recordings`` those that a cloud does not have.

    Raises:
        SpaceError: options that mean nothing beside these, or without them; a file of points that
            cannot be read.
    """
    if whole is None and points is None:
        if searcher:
            raise SpaceError("searchers take part in clouds only: --searcher needs --whole N")
        return None
    wrong = [f"--{name.replace('_', '-')}" for name in of_recordings if given.get(name)]
    if wrong:
        raise SpaceError(f"a cloud has no grid and no sample, but got {', '.join(wrong)}")
    from llamea_gpu.recording.clouds import SEARCHERS, MixtureSettings
    from llamea_gpu.spaces.formats.cloud_lines import read_points

    found = None if points is None else read_points(points)
    count = len(dict(found.rows)) if found is not None else 0
    return MixtureSettings(whole or count, tuple(searcher or SEARCHERS), points=found)


def check_cloud_output(output: Path) -> None:
    """Refuse an output that is not called as clouds are, or exists without a journal beside it.

    Raises:
        SpaceError: it is one.
    """
    check_cloud_name(output)
    if not journal_path(output).exists():  # with a journal, it is a part to be completed
        check_new_output(output)


def print_cloud_outcome(output: Path, outcome: CloudOutcome, measurements: int) -> None:
    """How measuring a cloud ended; exits with 130 after Ctrl-C."""
    for searcher, trouble in outcome.troubles.items():
        typer.secho(f"warning: {searcher}: {trouble}", fg=typer.colors.YELLOW, err=True)
    if outcome.cloud is not None:
        found = outcome.cloud
        others = "".join(f", {k} {v:.6g} ms" for k, v in found.info.references_ms.items())
        typer.echo(
            f"{output}: {found.info.name}, a cloud of {len(found)} measurements, "
            f"{1 - found.ok.mean():.1%} failing, best {found.best_ms:.6g} ms{others}"
        )
    if outcome.done < measurements:
        typer.echo(
            f"{outcome.done} of {measurements} measured, kept in {outcome.journal}: the same "
            f"command continues"
        )
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
    return shlex.join(["llamea-gpu", *(names.get(word, word) for word in sys.argv[1:])])


def progress_text(at: RecordProgress) -> str:
    """How far a recording is, in a line."""
    left = "" if at.left_s is None else f", about {_duration(at.left_s)} left"
    spent = _duration(at.elapsed_s)
    return f"{at.done} of {at.total} measured, {at.failed} failing, {spent}{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
