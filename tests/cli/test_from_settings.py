"""Options made of a settings class: what is typed arrives, and help and bounds are the class's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner, Result

from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.live import TuneSettings
from llamea_gpu.promotion import PromotionSettings


class Oven(BaseModel):
    """Settings of every kind."""

    heat_c: Annotated[int, Field(ge=50, le=250, description="How hot.")] = 180
    minutes: float | None = Field(None, ge=1, description="How long.")
    fan: Annotated[bool, Field(description="Air moves.")] = False
    light: Annotated[bool, Field(description="One sees.")] = True
    mode: Annotated[Literal["bake", "grill"], Field(description="From where.")] = "bake"
    dishes: Annotated[tuple[str, ...], Field(description="What is in it.")] = ("pie", "bread")
    trays: tuple[Path, ...] = ()
    hidden: str = ""


def run(*arguments: str) -> tuple[Result, dict[str, Any]]:
    seen: dict[str, Any] = {}

    @options_of(Oven, leave=("hidden",), names={"dishes": "--dish"})
    def bake(given: dict[str, Any], note: str, loud: bool = False) -> None:
        """Bake."""
        seen.update(given, note=note, loud=loud)

    app = typer.Typer()
    app.command()(bake)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}), seen


def test_only_what_was_typed_arrives() -> None:
    result, seen = run("n", "--loud")
    assert result.exit_code == 0, result.output
    assert seen == {"note": "n", "loud": True}


def test_every_kind_arrives_as_the_settings_take_it() -> None:
    typed = "n --heat-c 200 --minutes 2.5 --fan --no-light --mode grill --dish a --dish b --trays t"
    result, seen = run(*typed.split())
    assert result.exit_code == 0, result.output
    del seen["note"], seen["loud"]
    oven = Oven(**seen)
    assert oven == Oven(
        heat_c=200,
        minutes=2.5,
        fan=True,
        light=False,
        mode="grill",
        dishes=("a", "b"),
        trays=(Path("t"),),
    )


@pytest.mark.parametrize(
    "typed",
    ["--heat-c 251", "--heat-c 49", "--minutes 0.5", "--mode fry", "--no-fan", "--hidden x"],
)
def test_what_the_settings_refuse_is_refused_with_usage(typed: str) -> None:
    result, seen = run("n", *typed.split())
    assert result.exit_code == 2
    assert not seen


def test_help_tells_descriptions_defaults_and_bounds() -> None:
    text = " ".join(run("--help")[0].output.split())
    for told in (
        "How hot. Default: 180.",
        "50<=x<=250",
        "x>=1",
        "One of bake, grill.",
        "What is in it. Repeatable. Default: pie, bread.",
        "--no-light",
        "--dish ",
    ):
        assert told in text
    assert "--no-fan" not in text


@pytest.mark.parametrize("settings", [EvolutionSettings, PromotionSettings, TuneSettings])
def test_every_option_of_ours_has_help(settings: Any) -> None:
    fields = getattr(settings, "model_fields", None) or settings.__pydantic_fields__
    bare = {name for name, field in fields.items() if not field.description}
    assert bare <= {"model", "further_models", "operators", "repeats_by_space", "sizes"}
