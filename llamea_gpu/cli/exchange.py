"""``llamea-gpu exchange``: the batch exchange by hand: what is asked, and handing in answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from llamea_gpu.cli.options import AsJson
from llamea_gpu.errors import LLMError
from llamea_gpu.files import read_text
from llamea_gpu.llm import BatchExchange

app = typer.Typer(no_args_is_help=True, help="The folder in which requests wait for answers.")
Folder = Annotated[Path, typer.Argument(help="Exchange folder.")]


def _open(folder: Path) -> BatchExchange:
    if not (folder / "requests").is_dir():
        hint = f": did you mean {folder / 'exchange'}?" if (folder / "exchange").is_dir() else ""
        raise LLMError(f"an exchange folder holds a folder 'requests', but {folder} does not{hint}")
    return BatchExchange(folder)


@app.command()
def pending(folder: Folder, as_json: AsJson = False) -> None:
    """List the requests that have no answer yet."""
    waiting = _open(folder).pending()
    typer.echo(json.dumps(waiting) if as_json else "\n".join(waiting) or "none pending")


@app.command()
def show(folder: Folder, request_id: str) -> None:
    """Print a request's prompt as plain text."""
    typer.echo(_open(folder).render_text(request_id))


@app.command()
def answer(
    folder: Folder,
    request_id: str,
    file: Annotated[Path, typer.Argument(help="The answer's text, as the model wrote it.")],
    model: Annotated[str, typer.Option(help="The model's name, as it gives it.")],
) -> None:
    """Hand in an answer that was produced by other means."""
    try:
        text = read_text(file)
    except (OSError, ValueError) as error:
        raise LLMError(
            f"an answer must be a readable UTF-8 text file, but {file}: {error}"
        ) from error
    _open(folder).submit_answer(request_id, text, model)
    typer.echo(f"{request_id}: {len(text)} characters by {model}")
