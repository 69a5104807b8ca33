"""The card beside a promoted optimizer: what it is, where it comes from, what was measured.

What it does: a JSON document by a schema, written together with the optimizer, whole or not at all,
and never over something that is there.

What it does not do: decide anything. `llamea_gpu.programs.shipped` reads ``date``, ``command``
and ``provenance`` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from llamea_gpu.bench.findings import Interval
from llamea_gpu.bench.plan import Count, Finite, Setting
from llamea_gpu.errors import SearcherError
from llamea_gpu.files import read_bytes, write_text

FORMAT_VERSION = 1
_MAX_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the program comes from.

    ``run`` is the run folder's name, ``prompt_sha256`` the identity of the prompt that it answered
    (empty for none), ``digest`` the candidate's, before its constants were tuned, ``version`` that
    of llamea_gpu.
    """

    model: str
    run: str
    slot: int
    operator: str
    parents: tuple[str, ...]
    prompt_sha256: str
    digest: str
    version: str


@dataclass(frozen=True, slots=True)
class SpaceP:
    """P on one space; the interval is 95 %, None with too few repeats."""

    space: str
    p: Finite
    interval: Interval | None
    cpu_s: Finite | None


@dataclass(frozen=True, slots=True)
class Scores:
    """P over several spaces, and by space."""

    p: Finite
    interval: Interval | None
    repeats: Count
    spaces: tuple[SpaceP, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher P is than an incumbent's on ``spaces``; the interval is 95 %."""

    incumbent: str
    spaces: tuple[str, ...]
    difference: Finite
    interval: Interval | None
    interval_spaces: Interval | None
    p_value: Finite | None


@dataclass(frozen=True, slots=True)
class Validation:
    """The one look: on which seed, as which one (from 1) of its run, at which level.

    ``charge_cpu``: whether own CPU seconds counted as tuning time.
    """

    scores: Scores
    seed: Count
    clock: str
    look: Count
    level: Finite
    differences: tuple[Difference, ...]
    charge_cpu: bool = False


@dataclass(frozen=True, slots=True)
class ModelledSpace:
    """A validation space whose costs a model said: no measurement.

    ``digest`` is of the measurements behind the model, ``gate`` what its gate said of it (passed,
    rejected, or not judged), ``reasons`` why it was rejected. ``best_ms`` is the best time
    measured, ``near_best`` the optimizer's time relative to it at each of the marks.
    """

    space: str
    digest: str
    clock: str
    gate: str
    reasons: tuple[str, ...]
    best_ms: Finite
    near_best: tuple[Finite, ...]


@dataclass(frozen=True, slots=True)
class Modelled:
    """What scores are in place of P, of training too: modelled, not measured (docs/adr/0005).

    ``scale`` says what 0 and 1 are, ``yardstick`` who is 0, ``marks_s`` after how many of
    ``budget_s`` simulated seconds `ModelledSpace.near_best` is.
    """

    score: str
    scale: str
    yardstick: str
    budget_s: Finite
    marks_s: tuple[Finite, ...]
    spaces: tuple[ModelledSpace, ...]


@dataclass(frozen=True, slots=True)
class LiveArm:
    """``runs`` live runs of ENGINE=SPEC: their winners' times relative to the best known."""

    arm: str
    runs: Count
    mean: Finite
    worst: Finite


@dataclass(frozen=True, slots=True)
class Slower:
    """Percent slower in the mean over ``kernels``; the interval is 95 %."""

    kernels: Count
    percent: Finite
    interval: Interval


@dataclass(frozen=True, slots=True)
class LiveDifference:
    """How much slower another arm is than the optimizer.

    ``winners`` compares what was found in the end, timed head to head; ``on_the_way`` the best so
    far by the searches' own readings, its logarithm averaged over the tuning time.
    """

    arm: str
    winners: Slower
    on_the_way: Slower


@dataclass(frozen=True, slots=True)
class Live:
    """What ``scripts/bench_live.py`` measured; the optimizer's own arm is the first.

    ``seconds`` is what a run lasts; winners of a kernel were timed head to head.
    """

    device: str
    framework: str
    seconds: Finite
    kernels: tuple[str, ...]
    arms: tuple[LiveArm, ...]
    differences: tuple[LiveDifference, ...]


@dataclass(frozen=True, slots=True)
class Training:
    """Tuning: the scores of the model's constants, and of the tuned ones if they were raced."""

    default: Scores
    tuned: Scores | None
    gain: Difference | None
    settings_tried: Count
    runs: Count


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the gate. ``measured`` and ``threshold`` are text, for people."""

    name: str
    measured: str
    threshold: str
    passed: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Card:
    """All of it. ``hyperparameters`` are the shipped ones, ``written`` those that the model wrote.

    ``command`` makes the validation's numbers again; ``source_sha256`` is of the file's text. With
    ``modelled``, whatever is called ``p`` is the score that it describes. ``live`` comes later,
    from a GPU.
    """

    format_version: Literal[1]
    name: str
    class_name: str
    idea: str
    date: str
    command: str
    provenance: Origin
    hyperparameters: Mapping[str, Setting]
    written: Mapping[str, Setting]
    training: Training
    validation: Validation
    checks: tuple[Check, ...]
    source_sha256: str
    modelled: Modelled | None = None
    live: Live | None = None

    def to_json(self) -> str:
        """The content of the card's file, without what there is nothing to say of."""
        left_out = {name for name in ("modelled", "live") if getattr(self, name) is None}
        return _CARD.dump_json(self, indent=1, exclude=left_out).decode() + "\n"

    @classmethod
    def load(cls, path: Path) -> Card:
        """Read a card.

        Raises:
            SearcherError: it is missing, too large or no card.
        """
        try:
            return _CARD.validate_json(read_bytes(path, _MAX_BYTES))
        except OSError as error:
            raise SearcherError(f"{path} must be a readable card, but: {error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            location = ".".join(map(str, first["loc"])) or "the document"
            raise SearcherError(f"{path} must be a card, but {location}: {first['msg']}") from None


_CARD = TypeAdapter(Card)


def write_promoted(card: Card, source: str, folder: Path) -> Path:
    """Write ``NAME.json`` and ``NAME.py``; returns the latter.

    Raises:
        SearcherError: either is there already, or the folder cannot be written.
    """
    program, document = folder / f"{card.name}.py", folder / f"{card.name}.json"
    try:
        if program.exists():
            raise FileExistsError
        write_text(document, card.to_json(), overwrite=False)
        try:
            write_text(program, source, overwrite=False)
        except BaseException:
            document.unlink()
            raise
    except FileExistsError:
        raise SearcherError(
            f"a promotion overwrites nothing, but {program} or its card exists: give another --name"
        ) from None
    except OSError as error:
        raise SearcherError(f"{folder} must be a folder to write to, but: {error}") from error
    return program
