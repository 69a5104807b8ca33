"""What a spec may set of the proposer: ``llm:MODEL?rounds=4&batch=15``."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from decimal import Decimal

from llamea_gpu.errors import SearcherError
from llamea_gpu.llm import Caps
from llamea_gpu.searchers.library import Setting
from llamea_gpu.searchers.llm.route import ROUTES

# These do not change what is asked: runs that differ in them alone can replay each other.
_NOT_IDENTITY = ("route", "fallback", "latency_s", "cap_tokens", "cap_usd", "tag")


@dataclass(frozen=True, slots=True)
class ProposerSettings:
    """The settings, checked.

    Attributes:
        model: the model, or several with commas: each is asked in every round.
        rounds: requests to each of them at most; batch: configurations a round, of all together.
        initial: random configurations that are measured, beside the default one, while the first
            request is under way.
        min_gain: a round that improves the best by less is a dull one, 0.005 for 0.5 %; patience:
            after so many dull rounds in a row the search ends.
        temperature: of the models; several with commas multiply the requests; "" leaves it to the
            server.
        structured: whether answers are to follow a JSON schema, where the server can do that.
        max_tokens: of an answer, thinking included.
        cap_tokens, cap_usd: bounds on a run; 0: none.
        fallback: the classical or library searcher that goes on when the models fail, or "none".
        latency_s: simulated seconds that an answer takes, charged as far as no measurement was
            under way; 0 charges nothing.
        route: openai, batch or replay; "" is what the environment says.
        tag: tells the records of runs apart that ask alike; a hybrid sets its own.
    """

    model: str
    rounds: int = 4
    batch: int = 15
    initial: int = 10
    min_gain: float = 0.005
    patience: int = 2
    temperature: str = ""
    structured: bool = True
    max_tokens: int = 8192
    cap_tokens: int = 0
    cap_usd: float = 0.0
    fallback: str = "iterated_local_search"
    latency_s: float = 0.0
    route: str = ""
    tag: str = ""

    def __post_init__(self) -> None:
        rules = {
            "a model": all(self.models),
            "rounds from 1 to 1000": 1 <= self.rounds <= 1000,
            "batch from 1 to 1000": 1 <= self.batch <= 1000,
            "initial from 0 to 1000": 0 <= self.initial <= 1000,
            "min_gain from 0 to 1": 0 <= self.min_gain <= 1,
            "patience of at least 1": self.patience >= 1,
            "max_tokens of at least 1": self.max_tokens >= 1,
            "caps of at least 0": self.cap_tokens >= 0 and 0 <= self.cap_usd < math.inf,
            "latency_s of at least 0": 0 <= self.latency_s < math.inf,
            f"a route of {', '.join(ROUTES)}": self.route in ("", *ROUTES),
            "a tag of at most 40 letters and digits": re.fullmatch("[A-Za-z0-9]{0,40}", self.tag)
            is not None,
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise SearcherError(f"llm:{self.model} must have {broken[0]}, but its settings do not")
        self.temperatures  # noqa: B018 - raises where it is no number

    @property
    def models(self) -> tuple[str, ...]:
        """The models by name."""
        return tuple(name.strip() for name in self.model.split(","))

    @property
    def temperatures(self) -> tuple[float | None, ...]:
        """One or several; None leaves it to the server.

        Raises:
            SearcherError: one is no number from 0 to 2.
        """
        if not self.temperature:
            return (None,)
        try:
            found = tuple(float(text) for text in self.temperature.split(","))
        except ValueError:
            found = (math.nan,)
        if not all(0 <= each <= 2 for each in found):
            raise SearcherError(
                f"llm:{self.model}: temperature must be a number from 0 to 2, or several with "
                f"commas, but got {self.temperature!r}"
            )
        return found

    @property
    def entrants(self) -> tuple[tuple[str, float | None], ...]:
        """(model, temperature) of each request of a round."""
        return tuple((model, t) for model in self.models for t in self.temperatures)

    @property
    def caps(self) -> Caps:
        """The bounds on a run."""
        return Caps(
            usd=Decimal(str(self.cap_usd)) if self.cap_usd else None,
            tokens=self.cap_tokens or None,
        )

    @property
    def digest(self) -> str:
        """Eight characters that tell apart settings which ask differently."""
        asked = {k: v for k, v in asdict(self).items() if k not in _NOT_IDENTITY}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


def defaults() -> dict[str, Setting]:
    """What a spec may set, with the defaults."""
    return {
        each.name: each.default  # type: ignore[misc]
        for each in fields(ProposerSettings)
        if each.name != "model"
    }
