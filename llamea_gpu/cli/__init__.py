"""The command line: arguments in, text or JSON out. Nothing is decided or computed here."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from llamea_gpu import __version__
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import LlameaGpuError

# The module of each and its name there, and what the list of them says of it: the first sentence of
# its help.
_COMMANDS = {
    "run": (
        "measure:run",
        "Run a searcher once on a recording, or a modelled whole space, and print the trace.",
    ),
    "score": (
        "measure:score",
        "Score traces that anything produced; an empty or 'inf' cost is a failed configuration.",
    ),
    "tune": (
        "tune:tune",
        "Tune a live kernel, or a recording, and print the best configuration as code.",
    ),
    "bench": (
        "bench:bench",
        "Compare searchers (default: on the validation split), seeds paired.",
    ),
    "evolve": (
        "evolve:evolve",
        "Evolve optimizers: ask a model, sandbox, score, breed. Everything paid for is kept.",
    ),
    "promote": (
        "promote:promote",
        "Tune the best candidates of a run, validate each once, and ship the first that passes.",
    ),
    "export": (
        "export:export",
        "Write an optimizer as one readable file that does not need llamea_gpu.",
    ),
    "report": (
        "report:report",
        "Write a report that needs no network: one file, for any browser.",
    ),
    "doctor": (
        "doctor:doctor",
        "Attack the sandbox from inside and say which level holds. Exit status 1 when none does.",
    ),
    "spaces": ("spaces:app", "Recorded search spaces, and clouds of larger ones."),
    "searchers": ("searchers:app", "Searchers that a command may be given."),
    "runs": ("runs:app", "Recorded evolution runs."),
    "exchange": ("exchange:app", "The folder in which requests wait for answers."),
}


# At the end of each command's help; tests parse them.
EXAMPLES = {
    "run": ("run growing_foresight --space matmul-2048 --seed 1",),
    "score": ("score traces.csv --space matmul-2048",),
    "tune": (
        "tune helion/matmul --seconds 60",
        "tune --space rope-4x32x4096x128 --with conditioned_local_search",
    ),
    "bench": (
        "bench growing_foresight genetic_algorithm --suite quick -o benches/first --report r.html",
        "bench mine.py kernel_tuner:genetic_algorithm --spaces '*matmul*' --repeats 25",
    ),
    "evolve": (
        "evolve -o runs/first --model MODEL --max-usd 5 --estimate",
        "evolve -o runs/first --model MODEL --base-url http://localhost:8000/v1 --free",
        "evolve -o runs/first --resume",
    ),
    "promote": ("promote runs/first --dry-run",),
    "export": ("export growing_foresight --to helion -o growing_foresight.py",),
    "report": ("report runs/first -o report.html",),
    "doctor": ("doctor --brief",),
}


class _Commands(TyperGroup):
    """Imports the module of a command when it is named: importing them all takes a second."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - of the base class
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        # All of them for a name that is none: a suggestion is chosen from those added.
        for name in [cmd_name] if cmd_name in _COMMANDS else _COMMANDS:
            if name not in self.commands:
                self.add_command(_load(name), name)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Of each command what it is, without its module."""
        known = self.commands
        self.commands = {
            name: TyperCommand(name, help=help_text) for name, (_, help_text) in _COMMANDS.items()
        }
        super().format_help(ctx, formatter)
        self.commands = known


def _load(name: str) -> Any:
    module, attribute = _COMMANDS[name][0].split(":")
    command = getattr(importlib.import_module(f"llamea_gpu.cli.{module}"), attribute)
    parent = typer.Typer()
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        lines = [f"llamea-gpu {line}" for line in EXAMPLES[name]]
        parent.command(name, epilog="\n\n".join(["Examples:", *lines]))(command)
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    name="llamea-gpu",
    cls=_Commands,
    help="Generate, score and use LLM-written optimizers for GPU-kernel autotuning.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold what must not be printed
    add_completion=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"llamea-gpu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Generate, score and use LLM-written optimizers for GPU-kernel autotuning."""


def main() -> None:
    """Entry point: an error of the user or the system is one message and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except (LlameaGpuError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {cell(str(error))}", soft_wrap=True)
        sys.exit(2)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning is for the user: what it says, not where in the code."""
    Console(stderr=True).print(f"[yellow]warning:[/] {cell(str(message))}", soft_wrap=True)
