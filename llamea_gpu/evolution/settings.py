"""Settings of an evolution run: one flat, validated model that a TOML file or flags fill.

It does not act on them. What may differ between a run and its continuation (route, workers,
budgets) and what may not (everything the results depend on) is marked here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from llamea_gpu import toml
from llamea_gpu.errors import SettingsError, suggestion
from llamea_gpu.files import read_text
from llamea_gpu.llm import parse_price
from llamea_gpu.prompting import OPERATORS

# Weights after the first generation. `new` stays at zero: fresh blood comes from `explore`, which
# sees what was tried already. Never drawn: `repair` answers failures, `sequential` is a strategy's.
DEFAULT_OPERATORS = {
    "refine": 4.0,
    "explore": 2.0,
    "crossover": 2.0,
    "simplify": 1.0,
    "diff-edit": 2.0,
}

# Ways of asking (docs/evolution.md).
Strategy = Literal["evolution", "independent", "sequential"]

# What a continuation may change, because no score or prompt depends on it.
CHANGEABLE = frozenset(
    {
        *("route", "base_url", "api_key_env", "exchange", "replay", "replay_strict", "timeout_s"),
        *("poll_s", "max_retries", "candidates", "max_usd", "max_tokens_total", "max_wall_s"),
        *("max_answers", "max_wait_s"),
        *("workers", "cluster", "min_sandbox_level", "unsafe_no_sandbox", "spaces_path", "prices"),
        *("price", "free"),
    }
)

PATHS = ("exchange", "replay", "prices")
_AFTER_PATH = re.compile(r"(#\d+|(?<=\.py)[:?].*)$")  # RUN#SLOT, FILE.py:Class, FILE.py?key=value


class EvolutionSettings(BaseModel):
    """Everything ``llamea-gpu evolve`` can be told: the keys of its TOML file, and its options."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # search over programs
    seed: int = Field(1, ge=0, description="Seed of every choice.")
    candidates: int = Field(48, ge=1, description="Programs to ask for.")
    parents: int = Field(4, ge=1, description="The elite that breeds (mu).")
    strategy: Strategy = Field(
        "evolution",
        description="What a question shows: parents (evolution), nothing of other answers "
        "(independent), or one list of all results and the best program (sequential).",
    )
    offspring: int = Field(
        8,
        ge=1,
        description="One generation, and slots in flight (lambda); sequential: 1 unless given.",
    )
    operators: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=lambda: dict(DEFAULT_OPERATORS)
    )
    operator_choice: Literal["bandit", "weights"] = Field(
        "bandit", description="How a slot's operator is drawn."
    )
    cost_weight: float = Field(0.5, ge=0, le=1, description="Of an answer's cost, in the bandit.")
    parent_choice: Literal["front", "elite"] = Field(
        "front", description="front: and whoever leads on some space."
    )
    max_repairs: int = Field(2, ge=0, le=10, description="Of a program that fails.")
    seed_programs: tuple[str, ...] = Field(
        (
            "random_search",
            "iterated_local_search",
            "genetic_algorithm",
            "differential_evolution",
            "simulated_annealing",
        ),
        description="Searchers that are the first parents.",
    )
    inspirations: tuple[str, ...] = Field(
        (), description="A run, RUN#SLOT, FILE.py[:Class], name or 'shipped' as first parents."
    )

    # what is decided when a run begins, by its problem; runs from before they existed have none
    fresh_seeds: bool | None = Field(
        None,
        description="Seeds of its own for each generation, on which the elite is scored again. "
        "Default: on whole spaces, for evolution.",
    )
    race_repeats: int | None = Field(
        None,
        ge=0,
        description="Runs on each space in the first heat of a race, then twice as many; 0: space "
        "after space with all runs. Default: 2 on whole spaces, for evolution.",
    )
    tuned_variants: int | None = Field(
        None,
        ge=0,
        le=100,
        description="Settings of its constants that a program is tried with before it competes. "
        "Default: 3 on whole spaces, for evolution.",
    )
    inspirations_shown: int | None = Field(
        None,
        ge=0,
        description="Inspirations, the best first, that a first question of every strategy shows; "
        "0: evolution breeds from them at once, the others list them or do not. Default: 2.",
    )

    # tasks
    spaces: tuple[str, ...] = Field(("train",), description="Training space or split.")
    spaces_path: tuple[str, ...] = Field((), description="Folder with further recordings.")
    clock: str = Field(
        "",
        description="'sequential', 'parallel(W)' or 'pipelined(W)'; default: each recording's own.",
    )
    unfit: bool = Field(False, description="Use models that have not passed their gate, too.")
    budget_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="Simulated seconds of a run on a whole space (default: 45).",
    )
    repeats: int = Field(10, ge=2, description="Runs on each space.")
    # More for spaces where luck decides, fewer where runs agree.
    repeats_by_space: dict[str, Annotated[int, Field(ge=2)]] = Field(default_factory=dict)
    cascade_spaces: int = Field(2, ge=1, description="Spaces of the second stage.")
    bootstrap: int = Field(100, ge=10, description="Resamples for the error of P.")
    charge_cpu: bool = Field(False, description="Own CPU seconds count as tuning time.")

    # sandbox
    cpu_limit_s: float = Field(
        10.0, gt=0, le=86_400, description="CPU seconds that a program's run may take."
    )
    memory_mb: int = Field(2048, ge=1024, description="Memory of a program's run.")
    workers: int | None = Field(None, ge=1, description="Runs side by side; default: all cores.")
    cluster: str = Field(
        "", description="'ray', HOST:PORT or ray://HOST:PORT: run on the nodes of a Ray cluster."
    )
    min_sandbox_level: int = Field(
        1, ge=1, le=3, description="Refuse to run below it ('llamea-gpu doctor')."
    )
    unsafe_no_sandbox: bool = Field(False, description="No isolation (disposable VMs only).")

    # model and prompts
    route: Literal["openai", "batch", "replay"] = Field(
        "openai", description="Where answers come from."
    )
    model: str = ""
    further_models: tuple[str, ...] = ()
    temperature: float | None = Field(None, description="Of answers; default: the server's.")
    max_tokens: int = Field(16_384, ge=256, description="Of one answer.")
    base_url: str | None = Field(None, description="OpenAI-compatible endpoint.")
    api_key_env: str = Field(
        "OPENAI_API_KEY", description="Environment variable that holds the endpoint's key."
    )
    timeout_s: float = Field(600.0, gt=0, description="Seconds to wait for an answer.")
    max_retries: int = Field(5, ge=0, description="Of a request that broke off.")
    exchange: str = Field(
        "", description="Folder of the batch exchange; default: 'exchange' of the run."
    )
    poll_s: float = Field(2.0, gt=0, description="Seconds between looks into the exchange.")
    replay: str = Field("", description="Recording that answers.")
    replay_strict: bool = Field(
        True, description="Refuse prompts that the recording does not hold."
    )
    prices: str = Field("", description="Price table (TOML); default: the shipped one.")
    price: str = Field(
        "", description="IN,OUT: dollars per million tokens of models that have no known price."
    )
    free: bool = Field(False, description="Models without a known price cost nothing: your own.")
    guidance: str = Field("", max_length=2000, description="Your own words, in every prompt.")

    # budgets
    max_usd: float | None = Field(None, gt=0, description="Most that answers may cost.")
    max_tokens_total: int | None = Field(None, gt=0, description="Most tokens of all answers.")
    max_answers: int | None = Field(None, gt=0, description="Most answers, repairs included.")
    max_wall_s: float | None = Field(None, gt=0, description="Most seconds to run.")
    max_wait_s: float | None = Field(
        None,
        ge=0,
        description="Most seconds to wait for answers while there is nothing else to do, as in an "
        "exchange that is answered by hand; then --resume goes on.",
    )

    @model_validator(mode="before")
    @classmethod
    def _strategy_decides(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("strategy") == "sequential":
            return {"offspring": 1, **fields}
        return fields

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # Perhaps a key itself: it must not appear in a message, a log or an archive.
            raise ValueError(
                "api_key_env names the environment variable that holds the key, and what was given "
                "is no such name (it is not shown here, in case it is the key)"
            )
        return name

    @model_validator(mode="after")
    def _price_is_two_numbers(self) -> EvolutionSettings:
        if self.price and self.free:
            raise ValueError("give --price or --free, not both")
        parse_price(self.price or "0,0")
        return self

    @field_validator("operators")
    @classmethod
    def _known_operators(cls, weights: dict[str, float]) -> dict[str, float]:
        drawn = [name for name in OPERATORS if name not in ("repair", "sequential")]
        unknown = sorted(set(weights) - set(drawn))
        if unknown:
            raise ValueError(f"operators must be among {drawn}, got {unknown}")
        if sum(weights.values()) <= 0:
            raise ValueError("at least one operator must have a weight above 0")
        return weights

    @model_validator(mode="after")
    def _models_are_distinct(self) -> EvolutionSettings:
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"models must be distinct, got {list(self.models)}")
        return self

    @model_validator(mode="after")
    def _route_is_complete(self) -> EvolutionSettings:
        if self.route == "replay" and not self.replay:
            raise ValueError("route 'replay' needs the recording: --replay FILE")
        if self.route == "openai" and not self.model:
            raise ValueError("route 'openai' needs the model's name: --model NAME")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that may be asked."""
        return (self.model, *self.further_models)


def read_file(file: Path) -> dict[str, Any]:
    """The fields of a TOML file; relative paths in it are relative to the file.

    Raises:
        SettingsError: the file is missing or not TOML.
    """
    try:
        fields: dict[str, Any] = toml.loads(read_text(file))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} must be a readable TOML file, but: {error}") from error
    return with_absolute_paths(fields, file.parent)


def with_absolute_paths(fields: dict[str, Any], base: Path) -> dict[str, Any]:
    """``fields`` with relative paths taken from ``base``: a run may go on from elsewhere."""
    resolved = dict(fields)
    for name in PATHS:
        if isinstance(resolved.get(name), str) and resolved[name]:
            resolved[name] = str((base / resolved[name]).absolute())
    folders = resolved.get("spaces_path")
    if isinstance(folders, (list, tuple)):
        resolved["spaces_path"] = [str((base / str(folder)).absolute()) for folder in folders]
    brought = resolved.get("inspirations")
    if isinstance(brought, (list, tuple)):
        resolved["inspirations"] = [_absolute_inspiration(str(spec), base) for spec in brought]
    return resolved


def _absolute_inspiration(spec: str, base: Path) -> str:
    """``spec`` with the path in it made absolute; a name stays as it is."""
    path = _AFTER_PATH.sub("", spec)
    if "/" in spec or path.endswith(".py") or (base / path).is_dir():
        return f"{(base / path).absolute()}{spec[len(path) :]}"
    return spec


def validated(fields: dict[str, Any]) -> EvolutionSettings:
    """Check ``fields``; every complaint in one SettingsError."""
    try:
        return EvolutionSettings(**fields)
    except ValidationError as error:
        complaints = "; ".join(map(_complaint, error.errors(include_url=False)))
        raise SettingsError(f"evolution settings break a rule: {complaints}") from None


def _complaint(item: Any) -> str:
    """One of pydantic's complaints, in our words: the rule and what was got."""
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        settings = EvolutionSettings.model_fields
        hint = suggestion(name, settings, "'evolve --help' lists them")
        return f"there is no setting {name!r}: {hint}"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        return f"{name}: {message}" if name else str(message)
    return f"{name}: {message} (got {item['input']!r})"


def recorded_settings(text: str) -> EvolutionSettings:
    """The settings that a run's archive holds, as JSON.

    Raises:
        SettingsError: they are damaged, or of another version.
    """
    try:
        return EvolutionSettings.model_validate_json(text)
    except ValidationError as error:
        complaint = error.errors(include_url=False)[0]
        location = ".".join(str(part) for part in complaint["loc"])
        raise SettingsError(
            f"the recorded settings must be this version's, but {location}: {complaint['msg']}: "
            f"the run folder is damaged or foreign"
        ) from None


def decided(settings: EvolutionSettings, *, whole: bool) -> EvolutionSettings:
    """``settings`` of a new run, with what is decided when it begins.

    ``whole``: its spaces are whole ones. A run from before a setting existed goes on without it.
    """
    breeds = whole and settings.strategy == "evolution"
    decisions = {
        "fresh_seeds": breeds,
        "race_repeats": 2 if breeds else 0,
        "tuned_variants": 3 if breeds else 0,
        "inspirations_shown": 2 if settings.inspirations else 0,
    }
    open_ = {name: value for name, value in decisions.items() if getattr(settings, name) is None}
    return settings.model_copy(update=open_)


def continued(recorded: str, overrides: dict[str, Any]) -> EvolutionSettings:
    """The settings of a run that goes on: as recorded (JSON), with changeable fields replaced.

    Raises:
        SettingsError: an override would change what the results so far depend on.
    """
    before = recorded_settings(recorded)
    after = validated({**before.model_dump(), **overrides})
    changed = [
        name
        for name in EvolutionSettings.model_fields
        if getattr(before, name) != getattr(after, name) and name not in CHANGEABLE
    ]
    if changed:
        raise SettingsError(
            f"a continued run keeps what its results depend on, but {changed} would change: "
            f"drop them, or start a new run"
        )
    return after
