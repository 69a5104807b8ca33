"""What was found out about this machine's sandbox, as data for `llamea-gpu doctor` to print.

Frozen dataclasses only: nothing here tests, measures or prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# active: part of this level, which was verified. off: there, but this level does without it or was
# not verified. missing: not on this machine. failed: there, but it does not work.
LayerState = Literal["active", "off", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation: ``detail`` says what it covers or why it failed.

    ``remedy`` is how to get a layer that is missing or failed, empty otherwise.
    """

    name: str
    state: LayerState
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class AttackVerdict:
    """One self-attack: whether it was held off, and the candidate's own account of it."""

    name: str
    held: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Costs:
    """What isolation costs here: start of a zygote in seconds, a run of an empty candidate in ms
    (and in CPU ms), one ask of one configuration and one configuration in a batch of 100 in µs.
    """

    start_s: float
    run_ms: float
    run_cpu_ms: float
    ask_us: float
    batched_us: float


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level as tried: verified or not, why not, its layers, its attacks, its costs."""

    number: int
    title: str
    verified: bool
    problem: str
    layers: tuple[Layer, ...]
    verdicts: tuple[AttackVerdict, ...]
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """Every level that was tried, best first, and the one in use (None: none was verified).

    ``alone`` is what a diagnosis adds: whether each layer holds without the others' help.
    """

    level: int | None
    tried: tuple[LevelReport, ...]
    alone: tuple[AttackVerdict, ...] = ()

    @property
    def current(self) -> LevelReport | None:
        """The level in use."""
        return next((tried for tried in self.tried if tried.number == self.level), None)

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to install or change for a better level, without repeats."""
        texts = [layer.remedy for tried in self.tried for layer in tried.layers]
        return tuple(dict.fromkeys(text for text in texts if text))
