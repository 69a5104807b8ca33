"""The programs that come with this package, and where each of them comes from.

`classical` ones are human-designed, one file an algorithm; `generated` ones are promoted from
evolution runs, each with a card (`llamea_gpu.promotion.card`) beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.errors import SearcherError
from llamea_gpu.resources import resource_dir

_CLASSICAL = Path(__file__).resolve().parent / "classical"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an optimizer comes from. A text is empty where it is not known.

    ``origin`` is ``"shipped"`` (ours, MIT) or ``"file"`` (the user's). The others come from the
    card beside a generated optimizer: who wrote it, in which run, from which parents, when, and
    the command that makes it again.
    """

    origin: str
    model: str = ""
    run: str = ""
    parents: tuple[str, ...] = ()
    date: str = ""
    command: str = ""


def classical() -> dict[str, Path]:
    """Name to file of the human-designed optimizers, sorted."""
    files = sorted(path for path in _CLASSICAL.glob("*.py") if path.stem != "__init__")
    return {path.stem: path for path in files}


def generated() -> dict[str, Path]:
    """Name to file of the promoted optimizers, sorted."""
    files = sorted(resource_dir("generated_optimizers").glob("*.py"))
    return {path.stem: path for path in files}


def shipped() -> dict[str, Path]:
    """Name to file of everything that ships: classical optimizers, then generated ones."""
    return {**classical(), **generated()}


def provenance_of(name: str) -> Provenance:
    """Of the shipped optimizer ``name``: all that its card tells.

    Raises:
        SearcherError: the card is no JSON.
    """
    card = _card(name)
    provenance = card.get("provenance")
    provenance = provenance if isinstance(provenance, dict) else {}
    parents = provenance.get("parents")
    return Provenance(
        origin="shipped",
        model=_text(provenance, "model"),
        run=_text(provenance, "run"),
        parents=tuple(map(str, parents)) if isinstance(parents, list) else (),
        date=_text(card, "date"),
        command=_text(card, "command"),
    )


def _card(name: str) -> Mapping[str, Any]:
    """The card of a generated optimizer; empty when there is none."""
    path = resource_dir("generated_optimizers") / f"{name}.json"
    if not path.is_file():
        return {}
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearcherError(f"the card of {name} must be JSON, but: {error}") from error
    return card if isinstance(card, dict) else {}


def _text(card: Mapping[str, Any], key: str) -> str:
    value = card.get(key, "")
    return value if isinstance(value, str) else ""
