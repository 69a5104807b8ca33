"""``llamea-gpu spaces record``: measure the configurations of a live kernel on this machine's GPU."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Record a search space from a live kernel.")


@app.callback()
def _record() -> None:
    """Record a search space from a live kernel."""
