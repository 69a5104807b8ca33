"""What a run has measured, and what of it helps a model to propose better.

Differences from the best instead of whole configurations, what the top has in common, what each
value has done, and what only failures share. Only of what this run has measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from llamea_gpu.contract import Configuration
from llamea_gpu.prompting.proposer import Progress, Result, ValueEffect
from llamea_gpu.searchers.llm.layout import Layout
from llamea_gpu.searchers.llm.values import whole

_LEADERS = 8
_TOP_SHARE = 0.05  # within this of the best belongs to the top
_LEAST_TOP = 3
_FAILURES_SHOWN = 6
_SUSPECTS_SHOWN = 6
_LEAST_FAILURES = 2
_VALUES_SHOWN = 12
_NOTES_SHOWN = 14


class History:
    """The measurements of a run in their order; ``costs_ms`` has inf for failures."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.costs_ms: dict[Configuration, float] = {}
        self.failures: dict[Configuration, str] = {}
        self.default: Configuration | None = None

    def add(
        self,
        configs: Sequence[Configuration],
        costs_ms: Sequence[float],
        reasons: Sequence[str | None],
    ) -> None:
        """Note what was measured; ``reasons`` say why failed ones failed, where that is known."""
        for config, cost_ms, reason in zip(configs, costs_ms, reasons, strict=True):
            self.costs_ms[config] = cost_ms
            if not math.isfinite(cost_ms):
                self.failures[config] = reason or "failed"

    @property
    def best(self) -> Configuration | None:
        """The fastest that works."""
        working = self.best_first()
        return working[0] if working and math.isfinite(self.costs_ms[working[0]]) else None

    @property
    def best_ms(self) -> float:
        """Its time; inf when nothing works."""
        return min(self.costs_ms.values(), default=math.inf)

    def best_first(self) -> list[Configuration]:
        """All of them by cost, failures last."""
        return sorted(self.costs_ms, key=lambda config: self.costs_ms[config])

    def progress(
        self,
        *,
        number: int,
        rounds: int,
        gain: float | None,
        last: Iterable[Configuration],
        notes: Sequence[str],
    ) -> Progress:
        """What a refinement prompt says; ``number`` is that of the request, from 1."""
        best = self.best
        best_ms = self.best_ms
        working = [c for c in self.best_first() if math.isfinite(self.costs_ms[c])]
        top = [c for c in working if self.costs_ms[c] <= best_ms * (1 + _TOP_SHARE)]
        top = top if len(top) >= _LEAST_TOP else working[:_LEAST_TOP]
        default_ms = self.costs_ms.get(self.default) if self.default else None
        more = len(notes) - _NOTES_SHOWN
        return Progress(
            round=number,
            rounds=rounds,
            measured=len(self.costs_ms),
            failed=len(self.failures),
            best="" if best is None else self.layout.as_json(best),
            best_ms=None if best is None else best_ms,
            default_ms=default_ms if default_ms and math.isfinite(default_ms) else None,
            gain=gain,
            is_default=best is not None and best == self.default,
            leaders=tuple(self._result(config) for config in working[1 : 1 + _LEADERS]),
            last=tuple(self._result(config) for config in last),
            common=self._common(top) if len(top) >= _LEAST_TOP else (),
            top=len(top),
            effects=self._effects(),
            failures=self._failures(),
            suspects=self._suspects(working),
            notes=(*notes[:_NOTES_SHOWN], *([f"… and {more} more like these"] if more > 0 else [])),
        )

    def _result(self, config: Configuration) -> Result:
        cost_ms = self.costs_ms[config]
        return Result(self.layout.change(config, self.best), cost_ms, cost_ms / self.best_ms)

    def _common(self, top: Sequence[Configuration]) -> tuple[tuple[str, str], ...]:
        """Fields with one value in the top although others were measured."""
        common = []
        for field in self.layout.fields:
            values = {whole(self.layout.written(config, field)) for config in top}
            tried = {whole(self.layout.written(config, field)) for config in self.costs_ms}
            if len(values) == 1 < len(tried):
                common.append((field.name, values.pop()))
        return tuple(common)

    def _effects(self) -> tuple[ValueEffect, ...]:
        effects = []
        for field in self.layout.fields:
            seen: dict[str, list[float]] = {}
            for config, cost_ms in self.costs_ms.items():
                seen.setdefault(whole(self.layout.written(config, field)), []).append(cost_ms)
            ranked = sorted(seen.items(), key=lambda item: min(item[1]))[:_VALUES_SHOWN]
            if len(ranked) > 1:
                values = tuple(
                    (value, min(costs), len(costs), sum(map(math.isinf, costs)))
                    for value, costs in ranked
                )
                effects.append(ValueEffect(field.name, values))
        return tuple(effects)

    def _failures(self) -> tuple[str, ...]:
        """The latest ones, each with its reason."""
        latest = list(self.failures.items())[-_FAILURES_SHOWN:]
        return tuple(
            f"{self.layout.change(config, self.best)}: {reason}" for config, reason in latest
        )

    def _suspects(self, working: Sequence[Configuration]) -> tuple[str, ...]:
        """Values, and pairs of them, that occur in several failures and in nothing that works."""
        fields = self.layout.fields
        suspects: list[_Combination] = []
        for size in (1, 2):
            failed = Counter(self._combinations(self.failures, size))
            works = set(self._combinations(working, size))
            combos = [c for c, n in failed.most_common() if n >= _LEAST_FAILURES and c not in works]
            explained = {combo[0] for combo in suspects}
            suspects += [combo for combo in combos if explained.isdisjoint(combo)]
        return tuple(
            " and ".join(f"{fields[i].name} = {value}" for i, value in combo)
            for combo in suspects[:_SUSPECTS_SHOWN]
        )

    def _combinations(self, configs: Iterable[Configuration], size: int) -> Iterator[_Combination]:
        """Values of so many fields that occur together, each by the field's place."""
        for config in configs:
            written = [whole(self.layout.written(config, field)) for field in self.layout.fields]
            yield from combinations(enumerate(written), size)


_Combination = tuple[tuple[int, str], ...]
