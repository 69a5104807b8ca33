"""Tuning on a cluster's GPUs as the driver sees it: Ray and its nodes are left out.

The search is Helion's and ours, on the kernel's real space; what compiles and times are fakes, of
which the time is known.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("helion")

from support.command_line import llamea
from support.formula_timing import code_ms, code_of, read_again, timings
from support.one_machine import ROW_SUM, OneMachine, around_in, measure_by_formula, tuned

from llamea_gpu.cluster.pipeline import Gpus
from llamea_gpu.errors import ClusterError, RecordingError, SearcherError
from llamea_gpu.frameworks.helion.static import GPUS
from llamea_gpu.live import TuneProgress
from llamea_gpu.live.helion import cluster

ADDRESS = "10.0.0.5:6379"


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A cluster that is this machine; called with faults, it has them from now on."""
    monkeypatch.setattr(cluster, "ClusterPipeline", OneMachine)
    monkeypatch.setattr(cluster, "connected", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(cluster, "find_gpus", lambda kind: Gpus(kind or "H200", 2, 2))
    fake = partial(measure_by_formula, monkeypatch, tmp_path)
    fake()
    return fake


def lines_of(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


@pytest.mark.usefixtures("faked")
def test_a_result_is_as_one_of_this_machine(tmp_path: Path) -> None:
    told: list[TuneProgress] = []
    found = tuned(ADDRESS, around_in(tmp_path), tmp_path / "j", told.append, evaluations=20)
    header, *lines = lines_of(tmp_path / "j")
    assert header["facts"]["device"] == found.device == "NVIDIA H200"
    assert header["facts"]["multiprocessors"] == GPUS["H200"].multiprocessors
    assert len({tuple(line["c"]) for line in lines}) == len(found.measured) == 20
    assert all(line["ms"] == code_ms(line["source"]) for line in lines)
    assert [each.measured for each in told][-1] == 20
    assert found.best is not None
    assert found.best.time_ms == code_ms(code_of(found.best.configuration))
    assert found.best.time_ms == min(line["ms"] for line in lines)
    assert found.default_ms == code_ms(code_of(header["default"]))
    assert found.code.startswith("@helion.kernel(config=helion.Config(")
    assert found.trouble == ""
    (finalists,) = read_again(tmp_path)
    assert len(finalists) > 1


@pytest.mark.usefixtures("faked")
def test_ctrl_c_leaves_the_best_and_another_run_goes_on(tmp_path: Path) -> None:
    def stop(progress: TuneProgress) -> None:
        if progress.measured >= 10:
            raise KeyboardInterrupt

    journal, around = tmp_path / "journal", around_in(tmp_path)
    first = tuned(ADDRESS, around, journal, stop, evaluations=30)
    known = {tuple(line["c"]): line["ms"] for line in lines_of(journal)[1:]}
    assert 10 <= len(known) < 30
    assert first.best is not None
    assert first.best.time_ms == min(known.values())
    before = len(timings(tmp_path))
    command = ("tune", "row_sum", "--shape", "small", "--effort", "quick", "--json", "--with")
    command += (around, "--journal", journal, "--evaluations", 30, "--cluster", ADDRESS)
    found = json.loads(llamea(*command).stdout)
    assert found["evaluations"] == 30
    everything = {tuple(line["c"]): line["ms"] for line in lines_of(journal)[1:]}
    assert len(everything) == len(lines_of(journal)) - 1 == 30
    assert known.items() <= everything.items()
    assert found["best"]["time_ms"] == min(everything.values())
    # Beside the finalists, and the starts, which are under way before the journal is read.
    again = [line for line in timings(tmp_path)[before:] if "path" in line]
    assert len(again) <= 30 - len(known) + 2 + len(*read_again(tmp_path))


def test_without_a_gpu_left_the_best_so_far_is_the_result(
    tmp_path: Path, faked: Callable[..., None]
) -> None:
    around = around_in(tmp_path)
    faked(dict.fromkeys(range(12, 80), "refuses"))
    found = tuned(ADDRESS, around, tmp_path / "journal", evaluations=30)
    assert len(found.measured) == len(lines_of(tmp_path / "journal")) - 1 == 12
    assert found.trouble == "the GPU is gone"
    assert found.best is not None
    assert found.best.time_ms == min(each.time_ms for each in found.measured)
    faked(dict.fromkeys(range(80), "refuses"))
    with pytest.raises(RecordingError, match="the GPU is gone"):
        tuned(ADDRESS, around, tmp_path / "nothing", evaluations=30)


def test_finalists_that_cannot_be_read_keep_their_first_readings(
    tmp_path: Path, faked: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneMachine, "on_one", lambda *_: None)
    found = tuned(ADDRESS, around_in(tmp_path), tmp_path / "journal", evaluations=12)
    assert found.best is not None
    assert found.best.time_ms == min(line["ms"] for line in lines_of(tmp_path / "journal")[1:])


@pytest.mark.usefixtures("faked")
def test_of_a_budget_of_seconds_some_are_kept_for_the_best(tmp_path: Path) -> None:
    tuned(ADDRESS, around_in(tmp_path), tmp_path / "journal", evaluations=12, seconds=600.0)
    (reading,) = (line["seconds"] for line in timings(tmp_path) if "paths" in line)
    assert reading <= 12.0 + 3.0  # the most, and what compiling takes there


def test_misuse_is_told_before_anything_starts() -> None:
    for options, said in (
        (("--engine", "framework"), "the engine must be 'pipelined', but got 'framework'"),
        (("--device", 1), "all GPUs of a kind are used, but got device 1: leave it out"),
        (("--with", "no_such"), "known name or a FILE"),
    ):
        done = llamea("tune", "row_sum", "--cluster", "127.0.0.1:1", *options, status=2)
        assert said in " ".join(done.stderr.split())
    alone = llamea("tune", "row_sum", "--gpu", "H100", status=2)
    assert "got 'H100' and no cluster: name one with --cluster" in " ".join(alone.stderr.split())
    with pytest.raises(ClusterError, match="HOST:PORT"):
        tuned("nowhere", "random_search", Path("never"))


@pytest.mark.usefixtures("faked")
def test_a_kernel_that_only_this_process_can_measure_is_refused(tmp_path: Path) -> None:
    script, text = tmp_path / "own_benchmark.py", ROW_SUM.read_text()
    assert "@helion.kernel(" in text
    own = text.replace("@helion.kernel(", "@helion.kernel(autotune_benchmark_fn=print, ")
    script.write_text(own)
    with pytest.raises(SearcherError, match=r"on a cluster: autotune_benchmark_fn is set"):
        tuned(ADDRESS, "random_search", tmp_path / "journal", script=script)
