"""The card of a modelled space: what the gate found, and what was measured live since.

A JSON document beside the cloud, ``NAME.model.json`` beside ``NAME.cloud.parquet``, made by
``llamea-gpu spaces model``. It belongs to the measurements whose digest it names and to one version
of the recipe, which the cloud names; `card_of` gives no other one. It decides (`ModelCard.passed`),
it does not measure: the two parts of the gate that need a GPU come from files of measurements,

- `Confirmation`: the model's best predictions, measured: one must come within 2 % of the best known
- `Order`: searchers' results on the model and live, wanted in the same order (Spearman >= .6)

A card without them passes on held-out points alone, and says so (`ModelCard.open`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from llamea_gpu.errors import SpaceError
from llamea_gpu.files import read_bytes, write_text
from llamea_gpu.models.gate import Figures, examine, spearman
from llamea_gpu.models.model import SpaceModel, cloud_digest
from llamea_gpu.models.proposals import PROPOSED
from llamea_gpu.models.readings import Readings
from llamea_gpu.spaces.catalogue import CARD_SUFFIX, CLOUD_SUFFIX
from llamea_gpu.spaces.cloud import Cloud, merged

FORMAT_VERSION = 2  # of the document and of what its figures are: raise it with a change of either
WITHIN = 1.02  # of the best known, where one of the confirmed predictions must be
SAME_ORDER = 0.6
LEAST_PREDICTIONS = 20
LEAST_SEARCHERS = 4
_MAX_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The model's best predictions, measured.

    Attributes:
        predictions: how many were measured; working: how many of them work.
        best: the best of their times relative to the best known; median: the median of those that
            work; both on the scale of the cloud where ``scaled`` (the measuring run shares codes
            with it), else as they were read. inf and nan are written as null where none works.
        spearman: of predicted and measured times of those that work.
    """

    predictions: int
    working: int
    best: float | None
    median: float | None
    spearman: float
    scaled: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Results of searchers, higher is better: on the model and live."""

    on_model: Mapping[str, float]
    live: Mapping[str, float]
    spearman: float


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of how good a model is.

    Attributes:
        cloud: its name; digest: of its measurements; recipe: version of the fit.
        measurements, working: of the cloud; noise: relative, of a reading, None without repeats;
        best_ms: the best time measured; run_offsets: log of each run's slowness, None where not
            known.
        figures: of held-out points.
    """

    format: int
    cloud: str
    digest: str
    recipe: int
    versions: Mapping[str, str]
    measurements: int
    working: int
    best_ms: float
    noise: float | None
    run_offsets: tuple[float | None, ...]
    figures: Figures
    confirmation: Confirmation | None = None
    order: Order | None = None

    @property
    def reasons(self) -> list[str]:
        """Why the model does not pass, as sentences; empty where it does."""
        reasons = self.figures.faults()
        live = self.confirmation
        if live and not (live.best is not None and live.best <= WITHIN):
            best = "none works" if live.best is None else f"the best is {live.best:.3f}"
            reasons.append(
                f"its best predictions, measured: {best} the best known, wanted <= {WITHIN}"
            )
        if self.order and not self.order.spearman >= SAME_ORDER:
            reasons.append(
                f"searchers: rank correlation {self.order.spearman:.3f} with live runs, "
                f"wanted >= {SAME_ORDER}"
            )
        return reasons

    @property
    def passed(self) -> bool:
        """Whether nothing that was looked at falls short of the gate."""
        return not self.reasons

    def belongs_to(self, cloud: Cloud) -> bool:
        """Whether it is of these measurements and of their recipe."""
        return self.digest == cloud_digest(cloud) and self.recipe == cloud.recipe

    @property
    def open(self) -> list[str]:
        """What has not been looked at yet."""
        parts = {"its best predictions live": self.confirmation, "searchers live": self.order}
        return [name for name, part in parts.items() if part is None]

    @property
    def verdict(self) -> str:
        """In one word: passed or rejected."""
        return "passed" if self.passed else "rejected"


_ADAPTER = TypeAdapter(ModelCard)


def make_card(cloud: Cloud) -> ModelCard:
    """Examine a model of the cloud; takes some ten fits.

    Raises:
        SpaceError: too few measurements work.
    """
    readings = Readings.of(cloud)
    return ModelCard(
        format=FORMAT_VERSION,
        cloud=cloud.info.name,
        digest=cloud_digest(cloud),
        recipe=cloud.recipe,
        versions=_versions(),
        measurements=len(cloud),
        working=int(cloud.ok.sum()),
        best_ms=float(np.exp(np.nanmin(readings.log_ms))),
        noise=_or_none(readings.noise),
        run_offsets=tuple(map(_or_none, readings.run_offsets)),
        figures=examine(cloud),
    )


def confirmed(card: ModelCard, cloud: Cloud, measured: Cloud) -> ModelCard:
    """The card with what measuring the model's best predictions has given.

    Args:
        card: of ``cloud``.
        measured: measurements of predictions; configurations of ``cloud`` among them bring the run
            to its scale.

    Raises:
        SpaceError: another space, or too few of its configurations are new.
    """
    both = Readings.of(merged([cloud, measured]))
    model = SpaceModel(cloud)
    rows = np.arange(len(cloud), len(both.status))
    predicted = [model.outcome(measured.configuration(i)) for i in range(len(measured))]
    new = np.array([not outcome.measured for outcome in predicted])
    # Once for each configuration.
    _, first = np.unique(measured.configurations, axis=0, return_index=True)
    new &= np.isin(np.arange(len(measured)), first)
    if (proposed := measured.how == PROPOSED).any():
        new &= proposed  # what else was measured is no prediction of the best
    if new.sum() < LEAST_PREDICTIONS:
        raise SpaceError(
            f"a confirmation needs at least {LEAST_PREDICTIONS} measured predictions that are not "
            f"in the cloud, but got {new.sum()}: measure what --propose writes"
        )
    # On the cloud's scale, whichever run has the most measurements of all.
    shift = math.log(model.best_ms) - float(np.nanmin(both.log_ms[: len(cloud)]))
    log_ms = both.log_ms[rows] + shift - math.log(model.best_ms)
    works = new & np.isfinite(log_ms)
    expected = np.array([math.log(outcome.time_ms) for outcome in predicted])
    return replace(
        card,
        confirmation=Confirmation(
            predictions=int(new.sum()),
            working=int(works.sum()),
            best=math.exp(log_ms[works].min()) if works.any() else None,
            median=math.exp(np.median(log_ms[works])) if works.any() else None,
            spearman=spearman(expected[works], log_ms[works]) if works.sum() > 1 else 0.0,
            scaled=all(map(math.isfinite, both.run_offsets[len(cloud.runs) :])),
        ),
    )


def ordered(card: ModelCard, on_model: Mapping[str, float], live: Mapping[str, float]) -> ModelCard:
    """The card with the results of searchers on the model and live; higher is better.

    Raises:
        SpaceError: fewer than 4 searchers in both, or results that are not finite.
    """
    both = [name for name in on_model if name in live]
    results = [*on_model.values(), *live.values()]
    if len(both) < LEAST_SEARCHERS or not all(map(math.isfinite, results)):
        raise SpaceError(
            f"an order needs finite results of at least {LEAST_SEARCHERS} searchers, on the model "
            f"and live, but has {len(both)}"
        )
    columns = [np.array([results[name] for name in both]) for results in (on_model, live)]
    return replace(card, order=Order(dict(on_model), dict(live), spearman(*columns)))


def card_path(cloud_file: Path) -> Path:
    """Where the card of a cloud's file lies."""
    return cloud_file.with_name(cloud_file.name.removesuffix(CLOUD_SUFFIX) + CARD_SUFFIX)


def write_card(card: ModelCard, path: Path) -> None:
    """Write a card, whole or not at all."""
    write_text(path, _ADAPTER.dump_json(card, indent=1).decode() + "\n")


def read_card(path: Path) -> ModelCard:
    """Read a card.

    Raises:
        SpaceError: no such file, or no card of this format.
    """
    try:
        card = _ADAPTER.validate_json(read_bytes(path, _MAX_BYTES))
    except (OSError, ValidationError, ValueError) as error:
        raise SpaceError(
            f"{path} must be the card of a model, but cannot be read ({str(error)[:200]}): make "
            "it with `llamea-gpu spaces model CLOUD --card FILE`"
        ) from error
    if card.format != FORMAT_VERSION:
        raise SpaceError(
            f"{path} must have format {FORMAT_VERSION}, but has {card.format}: make it anew with "
            "`llamea-gpu spaces model CLOUD --card FILE`"
        )
    return card


def card_of(cloud: Cloud, cloud_file: Path) -> ModelCard | None:
    """The card beside a cloud's file, if there is one of these measurements and this recipe.

    Raises:
        SpaceError: there is a file of that name that is no card.
    """
    path = card_path(cloud_file)
    if not path.is_file():
        return None
    card = read_card(path)
    return card if card.belongs_to(cloud) else None


def _versions() -> dict[str, str]:
    import sklearn

    return {"scikit-learn": str(sklearn.__version__), "numpy": np.__version__}


def _or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None
