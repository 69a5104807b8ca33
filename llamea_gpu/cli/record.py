"""``llamea-gpu spaces record``: measure the configurations of a live kernel on this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from llamea_gpu.cli.options import progress_line
from llamea_gpu.errors import SpaceError
from llamea_gpu.recording.progress import RecordProgress

app = typer.Typer(no_args_is_help=True, help="Record a search space from a live kernel.")

Script = Annotated[Path, typer.Argument(help="Python file that describes the kernel.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Native file to write.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the sample and of the order of measuring.")]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        "--seconds",
        min=1,
        help="End in order after this time; the same command continues.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size", help="NAME=VALUE, of the problem, for tune_kernel_arguments(); repeatable."
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
) -> None:
    """Record a Kernel Tuner kernel: every valid configuration, or a stratified sample.

    SCRIPT defines tune_kernel_arguments(), which returns the keyword arguments of tune_kernel; it
    is executed. Interrupted or killed, the same command continues where it was.
    """
    from llamea_gpu.frameworks.kernel_tuner.kernel_script import parse_sizes
    from llamea_gpu.recording.kernel_tuner.record import record_kernel
    from llamea_gpu.recording.kernel_tuner.settings import RecordSettings

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
    )
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
