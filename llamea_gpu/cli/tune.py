"""``llamea-gpu tune``: one kernel, one searcher, the configuration to paste."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import (
    AsJson,
    SpacesPath,
    output_console,
    progress_line,
    search_path,
    warn_if_unsafe,
)
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.errors import SearcherError
from llamea_gpu.live.result import TuneSettings
from llamea_gpu.searchers.registry import require_ready
from llamea_gpu.spaces.catalogue import load_space

if TYPE_CHECKING:
    from llamea_gpu.live import ShapesResult, TuneProgress, TuningResult

_LOADING = "loading the framework and the kernel"


@options_of(
    TuneSettings,
    leave=("sizes", "starts"),
    names={"cpu_s": "--cpu-limit", "unsafe": "--unsafe-no-sandbox"},
)
def tune(
    given: dict[str, Any],
    script: Annotated[
        str | None,
        typer.Argument(help="Kernel script of Helion or Kernel Tuner, or a shipped one."),
    ] = None,
    searcher: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="An optimizer, FILE.py[:Class], llm:MODEL, hybrid:...; default: as said above.",
        ),
    ] = None,
    space: Annotated[str | None, typer.Option(help="Tune this recording instead.")] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="Kernel Tuner: NAME=VALUE, of the problem; repeatable."),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(help="Helion: 'all' or names with commas; each starts from the others' best."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 10,
    spaces_path: SpacesPath = None,
    as_json: AsJson = False,
) -> None:
    """Tune a live kernel, or a recording, and print the best configuration as code.

    Without --with, by improvement_by_instalments in Helion, and by
    conditioned_local_search in Kernel Tuner and on recordings.

    SCRIPT is executed, and so is an optimizer's source: on a live kernel in this
    process, on a recording in the sandbox. What a model answers to llm: is
    parsed, never executed.
    """
    from llamea_gpu.frameworks.kernel_tuner.kernel_script import parse_sizes
    from llamea_gpu.live import framework_of, tune_recording, tune_script
    from llamea_gpu.live.scripts import RECOMMENDED, find_kernel_script

    if (script is None) == (space is None):
        raise SearcherError("tune takes a kernel script, or --space and a recording's name")
    require_ready(searcher or "")
    settings = TuneSettings(**given, sizes=parse_sizes(size or ()))
    if shapes is not None:
        if script is None:
            raise SearcherError("--shapes are of a kernel script, but a recording was named")
        path = find_kernel_script(script)
        spec = searcher or RECOMMENDED[framework_of(path)]
        _tune_shapes(path, spec, settings, shapes, top, as_json=as_json)
        return
    if script is not None:
        path = find_kernel_script(script)
        with progress_line(_progress_text, _LOADING) as show:
            spec = searcher or RECOMMENDED[framework_of(path)]
            tuning = tune_script(path, spec, settings, show)
    else:
        warn_if_unsafe(settings.unsafe)
        recording = load_space(str(space), search_path(spaces_path))
        spec = searcher or RECOMMENDED["recording"]
        with Console(stderr=True).status("tuning"):
            tuning = tune_recording(recording, spec, settings)
    if as_json:
        typer.echo(json.dumps(tuning.document(top), indent=1))
    else:
        _print(tuning, top)
    if tuning.trouble:
        typer.echo(f"note: {plain(tuning.trouble)}", err=True)


def _tune_shapes(
    script: Path, searcher: str, settings: TuneSettings, shapes: str, top: int, *, as_json: bool
) -> None:
    from llamea_gpu.live import tune_script_shapes

    with progress_line(_shape_progress_text, _LOADING) as show:
        tunings = tune_script_shapes(
            script, searcher, settings, shapes, lambda *progress: show((progress[0], progress[1]))
        )
    if as_json:
        typer.echo(json.dumps(tunings.document(top), indent=1))
        return
    print_table(output_console(), _shapes_table(tunings))
    if tunings.single is None:
        typer.echo("no configuration that is best at one shape works at all of them")
    typer.echo(plain(tunings.code))


def _shapes_table(tunings: ShapesResult) -> Table:
    """The best at each shape, beside the default and the one that is best for all."""
    table = Table(
        *("shape", "best ms", "default ms", "speed-up", "one for all, ms", "configurations"),
        title="each shape by itself, and one configuration for all",
    )
    for shape, result in tunings.results.items():
        best_ms = result.best.time_ms if result.best else math.inf
        default = result.default_ms
        single_ms = tunings.time_ms(shape, tunings.single) if tunings.single else math.inf
        table.add_row(
            cell(shape),
            f"{best_ms:.6g}",
            "-" if default is None else f"{default:.6g}",
            "-" if default is None else f"{default / best_ms:.2f}x",
            f"{single_ms:.6g}" if math.isfinite(single_ms) else "-",
            str(len(result.measured)),
        )
    if tunings.single is not None:
        percent = 100 * (tunings.slowdown(tunings.single) - 1)
        table.caption = f"one for all is {percent:.1f} % slower than each by itself"
    return table


def _shape_progress_text(at: tuple[str, TuneProgress]) -> str:
    return f"{at[0]}: {_progress_text(at[1])}"


def _print(tuning: TuningResult, top: int) -> None:
    best = tuning.top(top)
    if not best or tuning.best is None:
        raise SearcherError(f"none of {len(tuning.measured)} configurations works")
    shared = {
        name: value
        for name, value in best[0].configuration.items()
        if all(each.configuration.get(name) == value for each in best)
    }
    names = [name for name in best[0].configuration if name not in shared]
    title = f"{tuning.kernel} on {tuning.device} with {tuning.searcher}"
    table = Table("time_ms", "of best", *map(cell, names), title=cell(title))
    for each in best:
        values = (cell(str(each.configuration.get(name))) for name in names)
        table.add_row(f"{each.time_ms:.6g}", f"{each.time_ms / tuning.best.time_ms:.3f}", *values)
    print_table(output_console(), table)
    typer.echo(_summary(tuning))
    typer.echo(plain(tuning.code))


def _summary(tuning: TuningResult) -> str:
    best_ms = tuning.best.time_ms if tuning.best else math.inf
    unit = "s" if tuning.clock == "wall" else f"simulated s ({tuning.clock})"
    text = (
        f"{best_ms:.6g} ms after {len(tuning.measured)} configurations, {tuning.failed} failing, "
        f"in {tuning.elapsed_s:.1f} {unit}"
    )
    if tuning.default_ms:
        text += (
            f"; the default takes {tuning.default_ms:.6g} ms, {tuning.default_ms / best_ms:.2f}x"
        )
    if tuning.optimum_ms:
        text += f"; {best_ms / tuning.optimum_ms - 1:.2%} above the optimum"
    return text


def _progress_text(at: TuneProgress) -> str:
    best = f"{at.best_ms:.6g} ms" if math.isfinite(at.best_ms) else "nothing works yet"
    return f"{at.measured} measured, {at.failed} failing, {best}, {at.elapsed_s:.0f} s"
