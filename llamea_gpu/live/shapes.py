"""One kernel at several shapes: each search starts from what the others found.

First every shape is tuned, one after another, with the best configurations of those before it
measured at the start. Then each shape measures the others' best that it has not seen. So every
best configuration has a time at every shape, and the one that is best for all of them (the least
geometric mean of its time over the best time of each shape) is read off.

It knows no framework: what tunes one shape is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import Any

from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.live.result import Measured, TuningResult

ALL = "all"

# (shape, configurations to begin with, whether to measure those alone) -> what was measured.
TuneShape = Callable[[str, Sequence[Mapping[str, Any]], bool], TuningResult]


@dataclass(frozen=True, slots=True)
class ShapesResult:
    """What came of tuning several shapes, by shape, in the order of tuning.

    ``searched`` is what each search measured itself, ``results`` the look at the others' too.
    """

    results: Mapping[str, TuningResult]
    searched: Mapping[str, TuningResult] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[Mapping[str, Any], ...]:
        """The best configuration of each shape, each once."""
        configurations: list[Mapping[str, Any]] = []
        for result in self.results.values():
            if result.best is not None and result.best.configuration not in configurations:
                configurations.append(result.best.configuration)
        return tuple(configurations)

    def time_ms(self, shape: str, configuration: Mapping[str, Any]) -> float:
        """Of a configuration at a shape: inf where it fails there or was not measured."""
        result = self.results[shape]
        if result.best is not None and result.best.configuration == configuration:
            return result.best.time_ms
        times = (e.time_ms for e in result.measured if e.configuration == configuration)
        return min(times, default=math.inf)

    def slowdown(self, configuration: Mapping[str, Any]) -> float:
        """Its time over each shape's best, geometric mean; inf where it fails at one."""
        ratios = [
            self.time_ms(shape, configuration) / result.best.time_ms
            for shape, result in self.results.items()
            if result.best is not None
        ]
        return geometric_mean(ratios) if all(map(math.isfinite, ratios)) else math.inf

    @property
    def single(self) -> Mapping[str, Any] | None:
        """The candidate that is best for all shapes; None when none works at every one."""
        best = min(self.candidates, key=self.slowdown, default=None)
        return None if best is None or math.isinf(self.slowdown(best)) else best

    @property
    def code(self) -> str:
        """A dictionary by shape to paste, and the single configuration for all."""
        lines = "".join(
            f"    {shape!r}: {config_code(result.best.configuration)},\n"
            for shape, result in self.results.items()
            if result.best is not None
        )
        text = f"CONFIGS = {{\n{lines}}}\n"
        if self.single is not None:
            text += f"FOR_ALL = {config_code(self.single)}\n"
        return text

    def document(self, count: int) -> dict[str, Any]:
        """The result as JSON; ``candidates`` have a time (null: fails) for each shape."""
        return {
            "shapes": {shape: result.document(count) for shape, result in self.results.items()},
            "candidates": [
                {
                    "configuration": dict(each),
                    "time_ms": {
                        shape: time if math.isfinite(time := self.time_ms(shape, each)) else None
                        for shape in self.results
                    },
                }
                for each in self.candidates
            ],
            "single": None if self.single is None else dict(self.single),
            "code": self.code,
        }


def chosen_shapes(text: str, offered: Sequence[str]) -> tuple[str, ...]:
    """``all``, or names with commas, as shapes of a script.

    Raises:
        SearcherError: a name that the script does not offer, or fewer than two.
    """
    names = tuple(offered) if text == ALL else tuple(filter(None, text.split(",")))
    for name in names:
        if name not in offered:
            raise SearcherError(
                f"the script has no shape {name!r}: {suggestion(name, [*offered, ALL])}"
            )
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise SearcherError(
            f"--shapes takes 'all' or at least two different names with commas, but got {text!r}: "
            f"one is --shape"
        )
    return names


def tune_shapes(shapes: Sequence[str], tune: TuneShape) -> ShapesResult:
    """Tune each shape, then measure at each what was best at another."""
    results: dict[str, TuningResult] = {}
    for shape in shapes:
        results[shape] = tune(shape, ShapesResult(results).candidates, False)
    candidates, searched = ShapesResult(results).candidates, dict(results)
    for shape in shapes:
        seen = [each.configuration for each in results[shape].measured]
        missing = [each for each in candidates if each not in seen]
        if missing:
            results[shape] = _joined(results[shape], tune(shape, missing, True))
    return ShapesResult(results, searched)


def _joined(first: TuningResult, more: TuningResult) -> TuningResult:
    """One run with what was measured after it; the better of the two results is its best."""
    later = tuple(
        Measured(each.configuration, each.time_ms, first.elapsed_s + each.elapsed_s)
        for each in more.measured
        if all(each.configuration != known.configuration for known in first.measured)
    )
    works = [each for each in later if math.isfinite(each.time_ms)]
    best = min([*works, *filter(None, [first.best])], key=lambda each: each.time_ms, default=None)
    return replace(
        first,
        measured=(*first.measured, *later),
        best=best,
        elapsed_s=first.elapsed_s + more.elapsed_s,
        code=first.code if best is first.best else more.code,
    )


def config_code(configuration: Mapping[str, Any]) -> str:
    """A configuration of Helion as an expression."""
    return f"helion.Config({', '.join(f'{k}={v!r}' for k, v in configuration.items())})"
