"""``llamea-gpu spaces model``: a model of a cloud, its gate and its card."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from llamea_gpu.cli.options import AsJson, SpacesPath, output_console, search_path, step
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SpaceError
from llamea_gpu.files import read_bytes
from llamea_gpu.models.card import (
    ModelCard,
    card_path,
    confirmed,
    make_card,
    ordered,
    read_card,
    write_card,
)
from llamea_gpu.models.gate import Agreement
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.spaces.catalogue import cloud_file, load_cloud
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats import import_cloud

_MAX_BYTES = 1 << 20


def model(
    cloud: Annotated[str, typer.Argument(help="A shipped cloud, a file, or a name on the path.")],
    card: Annotated[Path | None, typer.Option(help="Write the model's card to this file.")] = None,
    confirm: Annotated[
        Path | None, typer.Option(help="A cloud: the model's best predictions, measured.")
    ] = None,
    order: Annotated[
        Path | None,
        typer.Option(help='Searchers\' results, JSON: {"model": {NAME: P}, "live": {NAME: P}}.'),
    ] = None,
    propose: Annotated[
        int | None, typer.Option(min=1, help="Write this many best predictions to -o.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON lines to write, with --propose.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --propose.")] = 0,
    spaces_path: SpacesPath = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a cloud and judge it by its gate.

    Figures are of points that the fit has not seen. With --confirm or --order, a
    card that is there already is completed; else all is fitted anew.
    """
    folders = search_path(spaces_path)
    file = cloud_file(cloud, folders)
    measurements = load_cloud(cloud, folders)
    if propose is not None or output is not None:
        if propose is None or output is None:
            raise SpaceError("proposals need a number and a file: --propose N -o FILE")
        _propose(measurements, propose, output, seed)
        return
    model_card = None
    if confirm is not None or order is not None:
        model_card = _earlier(measurements, file, card)
    if model_card is None:
        with step("fitting and predicting some ten times"):
            model_card = make_card(measurements)
    if confirm is not None:
        measured, _ = import_cloud(confirm)
        model_card = confirmed(model_card, measurements, measured)
    if order is not None:
        model_card = ordered(model_card, *_results(order))
    if card is not None:
        write_card(model_card, card)
    if as_json:
        verdict = {
            "passed": model_card.passed,
            "reasons": model_card.reasons,
            "open": model_card.open,
        }
        typer.echo(json.dumps({**verdict, **asdict(model_card)}, indent=2))
    else:
        _print(model_card)


def card_state(cloud_file_: Path) -> str:
    """For a list of clouds: the verdict of the card beside the file."""
    path = card_path(cloud_file_)
    if not path.is_file():
        return "not examined"
    try:
        return read_card(path).verdict
    except SpaceError:
        return "unreadable"


def _earlier(cloud: Cloud, file: Path, card: Path | None) -> ModelCard | None:
    """The card at --card or beside the cloud, if it is of these measurements."""
    paths = (path for path in (card, card_path(file)) if path is not None and path.is_file())
    return next((c for c in map(read_card, paths) if c.belongs_to(cloud)), None)


def _propose(cloud: Cloud, count: int, output: Path, seed: int) -> None:
    from llamea_gpu.frameworks.helion.whole import bind
    from llamea_gpu.models.proposals import propose, write_proposals

    if "helion" not in cloud.info.framework.lower():
        raise SpaceError(
            f"proposals must be valid configurations, which only Helion says without a GPU, but "
            f"{cloud.info.name} is of {cloud.info.framework}"
        )
    with step("fitting"):
        fitted = SpaceModel(cloud)
    rng = np.random.default_rng(seed)
    with step("searching the model"):
        bound = bind(cloud)
        with bound.pretended():
            space = bound.space(rng, cloud.starts, cloud.default)
            proposals = propose(fitted, space, count, rng)
    write_proposals(fitted, proposals, output)
    best = proposals[0][1] if proposals else float("nan")
    typer.echo(
        f"{output}: {len(proposals)} proposals, the best predicted to take {best:.6g} ms "
        f"(modelled; best measured {fitted.best_ms:.6g} ms), and measured ones beside them"
    )


def _results(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    try:
        read = json.loads(read_bytes(path, _MAX_BYTES))
        model_, live = (
            {str(name): float(result) for name, result in read[key].items()}
            for key in ("model", "live")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpaceError(
            f'{path} must be JSON of {{"model": {{NAME: number}}, "live": {{NAME: number}}}}, but '
            f"is not: {error}"
        ) from error
    return model_, live


def _print(card: ModelCard) -> None:
    console = output_console()
    noise = "not known" if card.noise is None else f"{card.noise:.2%}"
    figures = card.figures
    status, seconds = figures.status, figures.seconds
    for key, text in {
        "cloud": f"{card.cloud}: {card.measurements} measurements, {card.working} work",
        "noise": f"{noise} of a reading",
        "time": f"median error {figures.median_error:.1%}, within 10 % of the best "
        f"{figures.error_near_best:.2%}",
        "status": f"{status.failing:.1%} fail, {status.predicted:.1%} are predicted to; AUC "
        f"{_number(status.auc)}, balanced accuracy {_number(status.balanced_accuracy)}, kind right "
        f"{_number(status.kind)}",
        "seconds": f"median error {seconds.compile_error:.1%} to compile, "
        f"{seconds.benchmark_error:.1%} to time; sums {seconds.compile_total:.2f} and "
        f"{seconds.benchmark_total:.2f} of the measured",
    }.items():
        console.print(f"[bold]{key:8}[/] {cell(text)}")
    table = Table(
        *("held out", "codes", "overall", "best tenth", "near the best", "which is", "curve")
    )
    rows = {"folds": figures.folds, **figures.left_out}
    for name, agreement in rows.items():
        table.add_row(cell(name), *_cells(agreement))
    print_table(console, table)
    console.print(
        "Spearman's rank correlation; in brackets, what the true times would reach. Curve: an "
        "optimizer's best so far, as predicted without its points over as measured."
    )
    if card.confirmation:
        live = card.confirmation
        best = "none works" if live.best is None else f"the best {live.best:.3f} of the best known"
        console.print(f"measured: {live.working} of {live.predictions} predictions work, {best}")
    if card.order:
        console.print(f"searchers: rank correlation {card.order.spearman:.2f} with live runs")
    console.print(f"[bold]{card.verdict}[/]")
    for reason in card.reasons:
        console.print(f"- {cell(reason)}")
    if card.open:
        console.print(f"not measured yet: {', '.join(card.open)}")


def _cells(agreement: Agreement) -> list[str]:
    near, tenth = agreement.near, agreement.tenth
    return [
        str(agreement.points),
        f"{agreement.spearman:.3f} ({agreement.ceiling:.2f})",
        f"{tenth.spearman:.2f} ({tenth.ceiling:.2f})",
        f"{near.spearman:.2f} ({near.ceiling:.2f})",
        f"{near.share:.0%}, to {near.within:.2f}",
        _number(agreement.curve),
    ]


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"
