"""``llamea-gpu spaces record``: measure the configurations of a live kernel on this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamea_gpu.cli.options import progress_line
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import SpaceError
from llamea_gpu.recording.progress import RecordProgress
from llamea_gpu.spaces.catalogue import check_cloud_name

if TYPE_CHECKING:
    from llamea_gpu.recording.clouds import CloudOutcome
    from llamea_gpu.recording.kernel_tuner.record import RecordSettings

app = typer.Typer(no_args_is_help=True, help="Record a search space from a live kernel.")

Script = Annotated[Path, typer.Argument(help="Python file that describes the kernel.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Native file to write.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the sample and of the order of measuring.")]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        min=1,
        help="End in order after this time; the same command continues.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        help="NAME=VALUE, of the problem: an argument of the script's function; repeatable.",
    ),
]
Whole = Annotated[
    int | None,
    typer.Option(min=1, help="This many measurements of the whole space instead: a cloud."),
]
CloudSearchers = Annotated[
    list[str] | None,
    typer.Option("--searcher", help="With --whole: whose trajectories are part; repeatable."),
]
Cluster = Annotated[
    str,
    typer.Option(help="'ray', HOST:PORT or ray://HOST:PORT: all GPUs of a Ray cluster, no others."),
]
Gpu = Annotated[str, typer.Option(help="With --cluster: the kind of GPU, as Ray names it (H100).")]
PointsFile = Annotated[
    Path | None,
    typer.Option(
        "--points", help="A cloud: measure these first; without --whole, nothing else. JSON lines."
    ),
]
Name = Annotated[str | None, typer.Option(help="The recording's name; default: the script's.")]


@app.callback()
def _record() -> None:
    """Record a search space from a live kernel."""


@app.command("kernel-tuner")
def kernel_tuner(
    script: Script,
    output: Output,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Measure a stratified sample of this size.")
    ] = None,
    seed: Seed = 0,
    device: Annotated[
        list[int] | None, typer.Option(help="Device number; repeat it to share the work.")
    ] = None,
    compilers: Annotated[
        int, typer.Option(min=1, help="Compile this many side by side on each device.")
    ] = 1,
    backend: Annotated[
        str | None, typer.Option(help="CUDA, CUPY, NVCUDA, HIP, C, ...; default: the script's.")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Timed runs of a configuration.")] = 7,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one configuration.")] = 60,
    max_seconds: MaxSeconds = None,
    size: Sizes = None,
    name: Name = None,
    whole: Whole = None,
    searcher: CloudSearchers = None,
    cluster: Cluster = "",
    gpu: Gpu = "",
    points: PointsFile = None,
) -> None:
    """Record a Kernel Tuner kernel: every valid configuration, or a stratified sample.

    With --whole it is a cloud of a space that is too large to list. SCRIPT
    defines tune_kernel_arguments(), which returns the keyword arguments of
    tune_kernel; it is executed. Interrupted or killed, the same command
    continues where it was.
    """
    from llamea_gpu.frameworks.kernel_tuner.kernel_script import parse_sizes
    from llamea_gpu.recording.kernel_tuner.record import RecordSettings, record_kernel

    mixed = cloud_options(whole, searcher, points, {"--sample": sample})
    if mixed is None:
        check_new_output(output)
    settings = RecordSettings(
        devices=tuple(device or [0]),
        compilers=compilers,
        backend=backend,
        iterations=iterations,
        timeout_s=timeout,
        sample=sample,
        seed=seed,
        max_seconds=max_seconds,
        sizes=parse_sizes(size or ()),
        name=name,
        command=command_line(script, output),
        cluster=cluster,
        gpu=gpu,
    )
    if mixed is not None:
        _record_cloud(script, output, mixed, settings)
        return
    with progress_line(progress_text) as show:
        outcome = record_kernel(script, output, settings, show)
    if outcome.recording is None:
        typer.echo(
            f"{outcome.done} of {outcome.total} configurations measured, kept in "
            f"{outcome.journal}: the same command continues"
        )
        return
    found = outcome.recording
    typer.echo(
        f"{output}: {found.info.name}, {found.space.size} configurations, "
        f"{1 - found.ok.mean():.1%} failing, best {found.optimum_ms:.6g} ms"
    )


def _record_cloud(
    script: Path, output: Path, mixed: dict[str, Any], settings: RecordSettings
) -> None:
    from llamea_gpu.recording.clouds import MixtureSettings
    from llamea_gpu.recording.kernel_tuner.cloud import record_cloud

    check_cloud_output(output)
    mixture = MixtureSettings(
        **mixed,
        seconds=settings.max_seconds,
        seed=settings.seed,
        name=settings.name,
        command=settings.command,
    )
    with progress_line(progress_text) as show:
        outcome = record_cloud(script, output, mixture, settings, show)
    print_cloud_outcome(output, outcome, mixture.measurements)


def cloud_options(
    whole: int | None,
    searcher: list[str] | None,
    points: Path | None,
    others: Mapping[str, object],
) -> dict[str, Any] | None:
    """What a cloud is to hold, as settings; None where none is wanted.

    Raises:
        SpaceError: options that mean nothing beside these, or without them; a file of points that
            cannot be read.
    """
    from llamea_gpu.spaces.formats.cloud_lines import read_points

    if whole is None and points is None:
        if searcher:
            raise SpaceError("searchers take part in clouds only: --searcher needs --whole N")
        return None
    given = [option for option, value in others.items() if value]
    if given:
        raise SpaceError(f"a cloud has no grid and no sample, but got {', '.join(given)}")
    found = None if points is None else read_points(points)
    count = len(dict(found.rows)) if found is not None else 0
    chosen: dict[str, Any] = {"measurements": whole or count, "points": found}
    return chosen | ({"searchers": tuple(searcher)} if searcher else {})


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
