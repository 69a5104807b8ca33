"""Prices of models: the shipped table, a user's own, and the lookup by a model's name.

Not here: cached, batch and long-prompt tariffs; the table says which way that errs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from llamea_gpu import toml
from llamea_gpu.errors import SettingsError
from llamea_gpu.files import read_text

_SHIPPED = Path(__file__).with_name("prices.toml")
_MILLION = Decimal(1_000_000)

# "gpt-4o-mini-2024-07-18" and "claude-haiku-4-5-20251001" are dated snapshots of a priced name.
_SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; exact."""

    input_usd: Decimal
    output_usd: Decimal

    def __post_init__(self) -> None:
        for name, value in (("input", self.input_usd), ("output", self.output_usd)):
            if not (isinstance(value, Decimal) and value.is_finite() and value >= 0):
                raise SettingsError(
                    f"a price must be a decimal number of dollars per million tokens, at least 0, "
                    f"but {name} is {value!r}"
                )

    def cost_usd(self, prompt_tokens: int, completion_tokens: int) -> Decimal:
        """Dollars for so many tokens; exact."""
        micro = prompt_tokens * self.input_usd + completion_tokens * self.output_usd
        return micro / _MILLION


def load_prices(path: Path | None = None) -> dict[str, Price]:
    """Read a price table: ``path``, or the one that ships.

    The format is that of ``prices.toml``. To add to the shipped table, merge the two:
    ``{**load_prices(), **load_prices(mine)}``.

    Raises:
        SettingsError: the file cannot be read or breaks the format.
    """
    source = path or _SHIPPED
    try:
        document = toml.loads(read_text(source), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the price table {source} cannot be read: {error}") from error
    models = document.get("models")
    if not isinstance(models, Mapping):
        raise SettingsError(f"the price table {source} must have a table [models]")
    return {name: _price(source, name, entry) for name, entry in models.items()}


def parse_price(text: str) -> Price:
    """``IN,OUT`` in dollars per million tokens, such as ``0.25,2``.

    Raises:
        ValueError: anything else.
    """
    parts = text.split(",")
    try:
        price_in, price_out = map(Decimal, parts)
        return Price(price_in, price_out)
    except (ArithmeticError, ValueError, SettingsError):
        raise ValueError(
            f"a price must be IN,OUT, two numbers of dollars per million tokens, such as 0.25,2, "
            f"but got {text!r}"
        ) from None


def find_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of ``model``, or of the name that it is a dated snapshot of; None when unknown."""
    return prices.get(model) or prices.get(_SNAPSHOT.sub("", model))


def unknown_price_message(model: str) -> str:
    """Why dollars cannot be counted for ``model``, and how to mend it."""
    return (
        f"dollars can be counted only for models with a known price, but {model!r} has none: say "
        f"--price IN,OUT (dollars per million tokens), or --free for a server of your own; or add "
        f'"{model}" = {{ input = IN, output = OUT }} under [models] to a price table and name that'
    )


def _price(source: Path, name: str, entry: object) -> Price:
    if not isinstance(entry, Mapping) or set(entry) != {"input", "output"}:
        raise SettingsError(
            f"{source}: the entry of {name!r} must be {{ input = …, output = … }}, but is {entry!r}"
        )
    values = [entry["input"], entry["output"]]
    if any(isinstance(value, bool) or not isinstance(value, int | Decimal) for value in values):
        raise SettingsError(f"{source}: the prices of {name!r} must be numbers, but are {values}")
    return Price(Decimal(values[0]), Decimal(values[1]))
