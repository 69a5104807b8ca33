"""Live evidence: what a folder of ``scripts/bench_live.py`` adds to a card, and what it cannot."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from llamea_gpu.cli import app
from llamea_gpu.errors import SearcherError
from llamea_gpu.promotion.card import Card
from llamea_gpu.promotion.live import _Run, checks_of, enter, live_of, slower
from llamea_gpu.resources import resource_dir

OURS, RIVAL, LIBRARY = "pipelined=mine.py", "pipelined=rival", "framework=helion:LFBOTreeSearch"
TIMES_MS = {  # by kernel and arm, of seeds 1, 2, 3
    "rope": {OURS: (1.0, 1.01, 1.02), RIVAL: (1.05, 1.06, 1.07), LIBRARY: (1.2, 1.3, 1.2)},
    "matmul": {OURS: (2.0, 2.0, 2.02), RIVAL: (2.1, 2.2, 2.1), LIBRARY: (2.0, 2.0, 2.02)},
}


@pytest.fixture
def card_file(tmp_path: Path) -> Path:
    shipped = resource_dir("generated_optimizers") / "main_effect_posterior.json"
    return Path(shutil.copy(shipped, tmp_path))


def written(folder: Path, digest: str, times_ms: Any = TIMES_MS) -> Path:
    """What the script leaves."""
    folder.mkdir(exist_ok=True)
    runs, winners = [], []
    for kernel, arms in times_ms.items():
        keys, times = [], []
        for arm, of_seeds in arms.items():
            for seed, time_ms in enumerate(of_seeds, 1):
                keys.append([arm, seed])
                times.append(time_ms)
                runs.append(
                    {
                        "kernel": kernel,
                        "arm": arm,
                        "seed": seed,
                        "seconds": 45.0,
                        "device": "NVIDIA H200",
                        "framework": "helion 1.5.0",
                        "source_sha256": digest if arm == OURS else None,
                        "default_ms": 4 * time_ms,
                        "measured": [[5.0, None], [9.0, 2 * time_ms], [18.0, time_ms]],
                    }
                )
        line = {"kernel": kernel, "runs": keys, "winners_ms": times, "known_ms": [0.5, 3.0]}
        winners.append(line)
    for name, lines in (("runs", runs), ("winners", winners)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_a_card_tells_winners_and_differences(tmp_path: Path, card_file: Path) -> None:
    digest = Card.load(card_file).source_sha256
    card, checks = enter(card_file, written(tmp_path / "live", digest))
    assert Card.load(card_file) == card
    assert card.live is not None
    own = card.live.arms[0]
    assert (own.arm, own.runs, card.live.kernels) == (OURS, 6, ("matmul", "rope"))
    # the best known is that of the cloud, .5 ms, on both
    assert own.mean == pytest.approx((1.0 + 1.01 + 1.02 + 2.0 + 2.0 + 2.02) / 6 / 0.5)
    assert own.worst == pytest.approx(2.02 / 0.5)
    assert [check.name for check in checks] == ["ahead live of rival"]  # the batches are no rival
    assert checks[0].passed
    by_arm = {each.arm: each for each in card.live.differences}
    logs = {
        arm: [sum(map(math.log, TIMES_MS[k][arm])) / 3 for k in TIMES_MS] for arm in (OURS, RIVAL)
    }
    mean = sum(b - a for a, b in zip(logs[OURS], logs[RIVAL], strict=True)) / 2
    for found in (by_arm[RIVAL].winners, by_arm[RIVAL].on_the_way):  # here the same
        assert found.percent == pytest.approx(100 * math.expm1(mean))
        assert found.interval.low < found.percent < found.interval.high


def test_an_optimizer_that_is_level_live_is_told_so(tmp_path: Path, card_file: Path) -> None:
    digest = Card.load(card_file).source_sha256
    level = {"rope": {OURS: (1.0, 1.1, 1.2), RIVAL: (1.01, 1.1, 1.2)}}
    written(tmp_path / "live", digest, level)
    result = CliRunner().invoke(
        app, ["promote", str(card_file), "--live", str(tmp_path / "live"), "--json"]
    )
    assert result.exit_code == 1, result.output
    (check,) = json.loads(result.stdout)
    assert not check["passed"]
    kept = Card.load(card_file).live
    assert kept is not None  # what speaks against it is kept as well
    assert kept.differences[0].winners.interval.low < 0


def test_runs_of_another_text_are_no_evidence(tmp_path: Path, card_file: Path) -> None:
    before = card_file.read_bytes()
    folder = written(tmp_path / "live", "0" * 64)
    with pytest.raises(SearcherError, match=r"text that ships .* has none: run scripts/bench_live"):
        enter(card_file, folder)
    assert card_file.read_bytes() == before


def test_one_run_of_a_rival_gives_no_interval(tmp_path: Path) -> None:
    once = {"rope": {OURS: (1.0, 1.1), RIVAL: (9.0,)}}
    live = live_of(written(tmp_path, "1" * 64, once), "1" * 64)
    (check,) = checks_of(live)
    assert (check.passed, check.measured) == (False, "no interval")


def test_a_line_that_a_kill_cut_short_is_left_out_but_nonsense_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, "1" * 64)
    whole = live_of(folder, "1" * 64)
    with (folder / "runs.jsonl").open("a") as file:
        file.write('{"kernel": "rope", "arm')
    assert live_of(folder, "1" * 64) == whole
    with (folder / "runs.jsonl").open("a") as file:
        file.write('\n{"kernel": "rope"}\n')
    with pytest.raises(SearcherError, match="line 19"):
        live_of(folder, "1" * 64)


def test_runs_of_two_lengths_are_no_one_session(tmp_path: Path) -> None:
    folder = written(tmp_path, "1" * 64)
    text = (folder / "runs.jsonl").read_text()
    (folder / "runs.jsonl").write_text(text.replace('"seconds": 45.0', '"seconds": 30.0', 1))
    with pytest.raises(
        SearcherError, match=r"NVIDIA H200, helion 1\.5\.0, 30 s; .*45 s: give each"
    ):
        live_of(folder, "1" * 64)


def test_a_lone_winner_is_the_best_known(tmp_path: Path) -> None:
    folder = written(tmp_path, "1" * 64, {"rope": {OURS: (1.5,)}})
    (line,) = (folder / "winners.jsonl").read_text().splitlines()
    (folder / "winners.jsonl").write_text(json.dumps({**json.loads(line), "known_ms": []}))
    (own,) = live_of(folder, "1" * 64).arms
    assert (own.runs, own.mean, own.worst) == (1, 1.0, 1.0)


def test_other_options_of_a_promotion_are_refused_with_live(card_file: Path) -> None:
    result = CliRunner().invoke(
        app, ["promote", str(card_file), "--live", ".", "--name", "other", "--repeats", "9"]
    )
    assert result.exit_code != 0
    assert "name, repeats" in str(result.exception or result.output)


def test_slower_needs_two_finite_runs_of_both() -> None:
    assert slower({"a": [0.0, 0.1]}, {"a": [0.2]}) is None
    assert slower({"a": [0.0, 0.1]}, {"a": [0.2, math.inf]}) is None
    found = slower({"a": [0.0, 0.0], "b": [0.0]}, {"a": [0.1, 0.1], "b": [0.3]})
    assert found is not None
    assert (found.kernels, found.percent) == (1, pytest.approx(100 * math.expm1(0.1)))
    assert found.interval.low == pytest.approx(found.interval.high)


def run_of(*measured: tuple[float, float | None], default_ms: float | None = 8.0) -> _Run:
    return _Run("k", OURS, 1, 10.0, "GPU", "helion", default_ms, measured)


def test_the_way_is_the_mean_logarithm_of_the_best_so_far() -> None:
    run = run_of((1.0, None), (2.0, 4.0), (5.0, 6.0), (6.0, 2.0), (12.0, 1.0))
    wanted = (2 * math.log(8) + 4 * math.log(4) + 4 * math.log(2)) / 10  # 1 ms came too late
    assert run.mean_log() == pytest.approx(wanted)
    late = run_of((4.0, 2.0), default_ms=None)
    assert late.mean_log() == pytest.approx(math.log(2))


def test_found_sooner_and_as_good_in_the_end_is_ahead(tmp_path: Path) -> None:
    digest = "1" * 64
    level = {"rope": {OURS: (1.0, 1.0, 1.001), RIVAL: (1.0, 1.0, 1.001)}}
    folder = written(tmp_path, digest, level)
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    for line in lines:
        if line["arm"] == RIVAL:
            line["measured"] = [[30.0 + line["seed"], 1.0]]
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (check,) = checks_of(live_of(folder, digest))
    assert check.passed, check.measured
    assert "+0.0 % [-0.1, +0.1] in the end" in check.measured
