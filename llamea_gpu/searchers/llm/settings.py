"""What a spec may set of the proposer, ``llm:MODEL?rounds=4&batch=15``, and how it reaches models.

The latter comes from the environment, because specs and folders are recorded:

LLAMEA_GPU_LLM_ROUTE        openai (default), batch or replay; ?route= in a spec goes before it
LLAMEA_GPU_LLM_BASE_URL     openai: the server's address; OpenAI's own without it
LLAMEA_GPU_LLM_API          openai: chat (default) or responses
LLAMEA_GPU_LLM_KEY_VARIABLE openai: the variable that holds the key (default OPENAI_API_KEY)
LLAMEA_GPU_LLM_TIMEOUT_S    openai: seconds an attempt may take (default 120);
                            batch: seconds to wait for an answer (default: as long as it takes)
LLAMEA_GPU_LLM_RETRIES      openai: attempts after the first (default 2)
LLAMEA_GPU_LLM_FOLDER       batch: the exchange folder
LLAMEA_GPU_LLM_POLL_S       batch: seconds between looks at it (default 2)
LLAMEA_GPU_LLM_RECORDING    replay: a recording, or a folder of them, one a run
LLAMEA_GPU_LLM_RECORD       any route: a folder to write each run's conversation and rounds to
LLAMEA_GPU_LLM_PRICES       a price table to add to the shipped one
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from llamea_gpu.errors import SearcherError
from llamea_gpu.llm import (
    BatchOptions,
    Caps,
    OpenAIOptions,
    Price,
    ReplayOptions,
    RouteOptions,
    load_prices,
)
from llamea_gpu.searchers.library import Setting

ROUTES = ("openai", "batch", "replay")
_PREFIX = "LLAMEA_GPU_LLM_"
_Number = TypeVar("_Number", int, float)


# These do not change what is asked: runs that differ in them alone can replay each other.
_NOT_IDENTITY = ("route", "fallback", "latency_s", "cap_tokens", "cap_usd", "tag")


def route_options(route: str, run_id: str) -> RouteOptions:
    """The options of ``route`` ("" for the environment's) for the run of that id.

    Raises:
        SearcherError: a variable is missing, or holds what it must not.
    """
    route = route or _variable("ROUTE") or "openai"
    if route == "openai":
        api = _variable("API") or "chat"
        if api not in ("chat", "responses"):
            raise SearcherError(f"{_PREFIX}API must be chat or responses, but is {api!r}")
        return OpenAIOptions(
            base_url=_variable("BASE_URL") or None,
            api_key_env=_variable("KEY_VARIABLE") or "OPENAI_API_KEY",
            timeout_s=_number("TIMEOUT_S", float, 120.0),
            max_retries=_number("RETRIES", int, 2),
            api="responses" if api == "responses" else "chat",
        )
    if route == "batch":
        limit_s = _number("TIMEOUT_S", float, 0.0)
        folder = _needed("FOLDER", route)
        return BatchOptions(Path(folder), _number("POLL_S", float, 2.0), limit_s or None)
    if route == "replay":
        path = Path(_needed("RECORDING", route))
        return ReplayOptions(path / f"{run_id}.jsonl" if path.is_dir() else path)
    raise SearcherError(f"a route must be one of {', '.join(ROUTES)}, but got {route!r}")


def require_route(route: str) -> None:
    """Fail once and now, not in each run.

    Raises:
        SearcherError: as for `route_options`.
        SettingsError: OpenAI's own server is meant, and there is no key.
    """
    options = route_options(route, "")
    if isinstance(options, OpenAIOptions):
        options.require_key()


def record_folder() -> Path | None:
    """Where conversations are kept, made if need be; None: nowhere.

    Raises:
        SearcherError: it cannot be made.
    """
    path = _variable("RECORD")
    if not path:
        return None
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SearcherError(f"{_PREFIX}RECORD must name a folder, but {path!r}: {error}") from error
    return folder


def prices() -> Mapping[str, Price]:
    """The shipped table, and the user's."""
    own = _variable("PRICES")
    return {**load_prices(), **(load_prices(Path(own)) if own else {})}


def _variable(name: str) -> str:
    return os.environ.get(f"{_PREFIX}{name}", "").strip()


def _needed(name: str, route: str) -> str:
    value = _variable(name)
    if not value:
        raise SearcherError(f"the route {route} needs the environment variable {_PREFIX}{name}")
    return value


def _number(name: str, kind: Callable[[str], _Number], default: _Number) -> _Number:
    text = _variable(name)
    try:
        value = kind(text) if text else default
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise SearcherError(f"{_PREFIX}{name} must be a number of at least 0, but is {text!r}")
    return value


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
            values = tuple(float(text) for text in self.temperature.split(","))
        except ValueError:
            values = (math.nan,)
        if not all(0 <= each <= 2 for each in values):
            raise SearcherError(
                f"llm:{self.model}: temperature must be a number from 0 to 2, or several with "
                f"commas, but got {self.temperature!r}"
            )
        return values

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
        identity = {k: v for k, v in asdict(self).items() if k not in _NOT_IDENTITY}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def defaults() -> dict[str, Setting]:
    """What a spec may set, with the defaults."""
    return {
        each.name: each.default  # type: ignore[misc]
        for each in fields(ProposerSettings)
        if each.name != "model"
    }
