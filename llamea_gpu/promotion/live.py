"""The last gate: what a promoted optimizer did live, beside others in the same session.

What it does: reads what ``scripts/bench_live.py`` wrote, compares the optimizer with every other
arm on the engine, and enters the result into its card, whatever it is.

What it does not do: run anything. A run counts for the optimizer only if its text is the one that
ships, by SHA-256.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, variance
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from llamea_gpu.bench.findings import Interval
from llamea_gpu.errors import SearcherError
from llamea_gpu.files import read_bytes, write_text
from llamea_gpu.promotion.card import Card, Check, Live, LiveArm, LiveDifference, Slower
from llamea_gpu.statistics import mean_of_independent, student_half_width

ENGINE = "pipelined"  # arms are ENGINE=SPEC
_MAX_BYTES = 1 << 28
_Line = TypeVar("_Line")
_Logs = dict[str, dict[str, list[float]]]  # by arm and kernel, of its runs


@dataclass(frozen=True, slots=True)
class _Run:
    """A line of runs.jsonl, as far as it matters here; ``measured`` has (s, ms), None: failed."""

    kernel: str
    arm: str
    seed: int
    seconds: float
    device: str
    framework: str
    default_ms: float | None
    measured: tuple[tuple[float, float | None], ...]
    source_sha256: str | None = None

    def mean_log(self) -> float:
        """Logarithm of the best so far in ms, averaged over the tuning time.

        Until the first result it is the default's; of a run that did not measure that, the time of
        its first result that works.
        """
        worked = sorted((s, t) for s, t in self.measured if t is not None)
        best = self.default_ms or next((t for _, t in worked), math.nan)
        area, since = 0.0, 0.0
        for at, time_ms in worked:
            at = min(at, self.seconds)
            area += (at - since) * math.log(best)
            since, best = at, min(best, time_ms)
        return (area + (self.seconds - since) * math.log(best)) / self.seconds


@dataclass(frozen=True, slots=True)
class _Winners:
    """A line of winners.jsonl: a kernel's winners (arm, seed), timed head to head in ms."""

    kernel: str
    runs: tuple[tuple[str, int], ...]
    winners_ms: tuple[float, ...]
    known_ms: tuple[float, ...] = ()


def live_of(folder: Path, source_sha256: str) -> Live:
    """What the runs in ``folder`` say of the program with that text.

    Raises:
        SearcherError: the folder cannot be read, or the program did not run there.
    """
    runs = {(r.kernel, r.arm, r.seed): r for r in _lines(folder / "runs.jsonl", _RUN)}
    last = {line.kernel: line for line in _lines(folder / "winners.jsonl", _WINNERS)}
    timed = {
        (line.kernel, arm, seed): (time_ms, min([*line.winners_ms, *line.known_ms]))
        for line in last.values()
        for (arm, seed), time_ms in zip(line.runs, line.winners_ms, strict=False)
    }
    timed_runs = {key: run for key, run in runs.items() if key in timed}
    kinds = sorted({f"{r.device}, {r.framework}, {r.seconds:g} s" for r in timed_runs.values()})
    if len(kinds) > 1:
        raise SearcherError(
            f"live evidence must be of one device, framework and tuning time, but {folder} has "
            f"{'; '.join(kinds)}: give each a folder of its own"
        )
    ours = {
        run.arm
        for run in timed_runs.values()
        if run.source_sha256 == source_sha256 and run.arm.startswith(f"{ENGINE}=")
    }
    if len(ours) != 1:
        raise SearcherError(
            f"live evidence must hold runs of the text that ships (SHA-256 "
            f"{source_sha256[:12]}...) on the engine, timed head to head, but {folder} has "
            f"{'none' if not ours else 'them as several arms'}: run scripts/bench_live.py "
            f"-o {folder} --arms {ENGINE}=NAME {ENGINE}=OTHER ..."
        )
    (own,) = ours
    ends: _Logs = defaultdict(lambda: defaultdict(list))
    ways: _Logs = defaultdict(lambda: defaultdict(list))
    ratios: dict[str, list[float]] = defaultdict(list)
    for (kernel, arm, seed), run in timed_runs.items():
        time_ms, best_ms = timed[kernel, arm, seed]
        ends[arm][kernel].append(math.log(time_ms))
        ways[arm][kernel].append(run.mean_log())
        ratios[arm].append(time_ms / best_ms)
    sample = next(run for run in timed_runs.values() if run.arm == own)
    others = [arm for arm in sorted(ratios) if arm != own]
    return Live(
        device=sample.device,
        framework=sample.framework,
        seconds=sample.seconds,
        kernels=tuple(sorted(ends[own])),
        arms=tuple(
            LiveArm(arm, len(ratios[arm]), mean(ratios[arm]), max(ratios[arm]))
            for arm in (own, *others)
        ),
        differences=tuple(
            LiveDifference(arm, end, way)
            for arm in others
            if (end := slower(ends[own], ends[arm])) is not None
            and (way := slower(ways[own], ways[arm])) is not None
        ),
    )


def slower(
    first: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]
) -> Slower | None:
    """By how many percent ``other`` is slower.

    Both hold log times of runs by kernel. The mean is over the kernels that both have, with two
    finite runs or more each; the interval is Student's, with the variances of either's runs on
    each kernel: seeds vary, these kernels do not. None where there is no such kernel.
    """
    both = [k for k in first if min(len(first[k]), len(other.get(k, ()))) > 1]
    if not both or not all(map(math.isfinite, [t for k in both for t in (*first[k], *other[k])])):
        return None
    middle = mean(mean(other[k]) - mean(first[k]) for k in both)
    variances = [sum(variance(x[k]) / len(x[k]) for x in (first, other)) for k in both]
    degrees = min(len(first[k]) + len(other[k]) - 2 for k in both)
    error, effective = mean_of_independent(variances, degrees)
    width = float(student_half_width(error, effective))
    low, percent, high = (100 * math.expm1(middle + x) for x in (-width, 0.0, width))
    return Slower(len(both), percent, Interval(low, high))


def checks_of(live: Live) -> tuple[Check, ...]:
    """One for each other arm on the engine: slower on the way, and not faster in the end."""
    judged = {each.arm: each for each in live.differences}
    checks = []
    for arm in (each.arm for each in live.arms[1:]):
        engine, _, spec = arm.partition("=")
        if engine != ENGINE:
            continue
        name, threshold = f"ahead live of {spec}", "> 0 % on the way, and not < 0 % in the end"
        if (difference := judged.get(arm)) is None:
            sentence = f"{spec} has fewer than two runs on every kernel."
            checks.append(Check(name, "no interval", threshold, False, sentence))
            continue
        way, end = difference.on_the_way, difference.winners
        passed = way.interval.low > 0 and end.interval.high >= 0
        measured = f"{_text(way)} on the way, {_text(end)} in the end"
        sentence = f"{spec} is {'slower' if passed else 'not shown to be slower'}: {measured}."
        checks.append(Check(name, measured, threshold, passed, sentence))
    return tuple(checks)


def _text(slowdown: Slower) -> str:
    low, high = slowdown.interval.low, slowdown.interval.high
    return f"{slowdown.percent:+.1f} % [{low:+.1f}, {high:+.1f}]"


def enter(card_file: Path, folder: Path) -> tuple[Card, tuple[Check, ...]]:
    """Write what ``folder`` says into the card; returns it with the live checks, for or against.

    Raises:
        SearcherError: there is no such card, or `live_of` finds nothing of its program.
    """
    card = Card.load(card_file)
    card = replace(card, live=live_of(folder, card.source_sha256))
    assert card.live is not None
    try:
        write_text(card_file, card.to_json(), overwrite=True)
    except OSError as error:
        raise SearcherError(f"{card_file} must be writable, but: {error}") from error
    return card, checks_of(card.live)


_RUN, _WINNERS = TypeAdapter(_Run), TypeAdapter(_Winners)


def _lines(path: Path, of: TypeAdapter[_Line]) -> list[_Line]:
    """Every whole line; the last one may have been cut short by a kill."""
    try:
        lines = read_bytes(path, _MAX_BYTES).splitlines()
    except OSError as error:
        raise SearcherError(f"{path} must be a readable file, but: {error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(of.validate_json(line))
        except ValidationError as error:
            if number < len(lines):
                message = error.errors(include_url=False)[0]["msg"]
                raise SearcherError(f"{path}, line {number}: {message}") from None
    return records
