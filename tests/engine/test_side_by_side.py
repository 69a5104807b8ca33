"""Contenders read in turns, by a clock that only readings move."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from llamea_gpu.engine.side_by_side import HEAT_UP_SHARE, Standing, side_by_side


class Device:
    """Contenders with true times; ``drift`` is by how much a second slows everything down."""

    def __init__(self, times_ms: list[float], drift: float = 0.0, overshoot: float = 1.0) -> None:
        self.times_ms, self.drift, self.overshoot = times_ms, drift, overshoot
        self.now_s = 0.0
        self.windows: list[tuple[int, float]] = []
        self.noise: dict[int, float] = {}  # of a window, a factor

    def read(self, which: int, seconds: float) -> float:
        factor = self.noise.get(len(self.windows), 1.0) * (1.0 + self.drift * self.now_s)
        self.windows.append((which, seconds))
        self.now_s += self.overshoot * seconds
        return self.times_ms[which] * factor

    def standings(self, seconds: float) -> list[Standing]:
        return side_by_side(self.read, len(self.times_ms), seconds, lambda: self.now_s)


def order(standings: list[Standing]) -> list[int]:
    return sorted(range(len(standings)), key=lambda i: standings[i].time_ms)


def test_the_time_is_used_and_kept() -> None:
    device = Device([1.0, 1.0001, 1.0002, 1.0003])
    device.standings(4.0)
    assert device.now_s == pytest.approx(4.0)
    assert device.windows[0] == (0, pytest.approx(HEAT_UP_SHARE * 4.0))


def test_windows_that_take_longer_than_told_shorten_the_later_ones() -> None:
    device = Device([1.0, 1.0001, 1.0002], overshoot=1.3)
    device.standings(4.0)
    assert device.now_s < 4.0 * 1.15


def test_clear_losers_leave_and_the_others_have_longer_windows() -> None:
    device = Device([1.0, 1.0005, 1.01, 1.02, 1.03])
    found = device.standings(3.0)
    assert order(found) == [0, 1, 2, 3, 4]
    windows = Counter(which for which, _ in device.windows[1:])
    assert windows == {0: 6, 1: 6, 2: 2, 3: 2, 4: 2}
    assert device.windows[-1][1] > 2 * device.windows[1][1]
    assert [each.windows for each in found] == [6, 6, 2, 2, 2]


def test_one_that_is_left_ends_it() -> None:
    device = Device([1.0, 1.1])
    device.standings(3.0)
    assert len(device.windows) == 1 + 4


def test_rounds_alternate_in_order() -> None:
    device = Device([1.0, 1.0, 1.0])
    device.standings(3.0)
    assert [which for which, _ in device.windows[1:7]] == [0, 1, 2, 2, 1, 0]


def test_a_drift_is_everybodys() -> None:
    """By .3 % in all: more than the contenders differ, and who left early was read when cool."""
    times = [1.0, 1.0008, 1.0045]
    found = Device(times, drift=0.001).standings(3.0)
    assert order(found) == [0, 1, 2]
    ratios = [each.time_ms / found[0].time_ms for each in found]
    assert ratios == pytest.approx(times, rel=4e-4)


def test_a_lucky_window_does_not_win() -> None:
    device = Device([1.0, 1.001])
    device.noise = {2: 0.9}
    assert order(device.standings(3.0)) == [0, 1]


def test_an_unlucky_window_does_not_lose() -> None:
    device = Device([1.0, 1.0015])
    device.noise = {1: 1.2}
    assert order(device.standings(3.0)) == [0, 1]


def test_what_fails_is_out() -> None:
    device = Device([math.inf, 1.0, math.nan, 1.001])
    found = device.standings(3.0)
    assert [math.isfinite(each.time_ms) for each in found] == [False, True, False, True]
    assert found[0].windows == 2


def test_nothing_and_nobody() -> None:
    assert side_by_side(lambda *_: 1.0, 0, 1.0, lambda: 0.0) == []
    assert [each.time_ms for each in Device([math.inf]).standings(1.0)] == [math.inf]


def test_without_time_each_is_read_twice_all_the_same() -> None:
    device = Device([1.0, 1.1])
    assert order(device.standings(0.0)) == [0, 1]
    assert len(device.windows) == 1 + 4
