"""A whole tuning on the engine: real compilation for a pretended H200, journals, faults."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("helion")

from support.formula_timing import code_ms, timings
from support.helion_engine import (
    EngineProvider,
    PretendedEngine,
    engine_search,
    provider_in,
    read_again,
    run_on_engine,
    timed,
)
from support.helion_live import bound_kernel

from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import generate, source_key
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.frameworks.helion.stages import Compiler
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.live.helion.engine import KernelEngine
from llamea_gpu.live.helion.journal import Config, JournalRequest, Remembered, TuningJournal
from llamea_gpu.spaces.recording import STATUSES

KEYS = {"c", "how", "status", "ms", "lo", "hi", "compile_s", "bench_s", "source", "at"}
HEADER = {"kernel", "script", "shape", "arguments", "names", "values", "ordinal", "default"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        with bound_kernel("row_sum", "H200", autotune_benchmark_fn=None) as bound:
            # As the user's process has, so that forks of it need not import.
            folder = tmp_path_factory.mktemp("warm")
            compiler = Compiler(FakeArguments(), bound[0], "row_sum", bound[1], folder)
            assert compiler(bound[0].config_spec.default_config().config)["status"] == "ok"
            yield bound


def near_the_start(evaluate: Any, space: Any, rng: Any) -> None:
    """Neighbours of the first start, a few at a time, by submitting."""
    for config in space.neighbors(space.starts[0], "adjacent"):
        evaluate.submit([config])
        if evaluate.pending >= 4:
            evaluate.wait()
    while evaluate.wait():
        pass


def lines_of(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def truth_ms(live: Any, chosen: Any) -> float:
    return code_ms(source_key(generate(live[0], chosen.config)))


def test_a_tuning_measures_keeps_and_reads_again(live: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    search = engine_search(live, near_the_start, journal, evaluations=10)
    chosen = run_on_engine(search, provider_in(tmp_path))
    header, *lines = lines_of(journal)
    assert set(header) >= HEADER
    assert (header["kernel"], header["shape"]) == ("row_sum", "medium")
    assert header["facts"]["device"] == "NVIDIA H200"
    assert len(lines) == len(search.evaluate.costs) == 10
    assert len({tuple(line["c"]) for line in lines}) == 10
    assert all(set(line) >= KEYS and line["status"] in STATUSES for line in lines)
    assert {line["how"] for line in lines} == {"start", "written"}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    worked = [line for line in lines if line["status"] == "ok"]
    assert all(line["ms"] == code_ms(line["source"]) for line in worked)
    assert truth_ms(live, chosen) == min(line["ms"] for line in worked)
    # Equal code was timed once.
    assert sorted(timed(tmp_path)) == sorted({line["source"] for line in worked})
    (again,) = read_again(tmp_path)
    assert 1 < len(again) <= 9
    assert search.benchmark_provider.start_s["timing cuda"] == 0.5


def test_the_starts_compile_while_what_is_right_is_computed(live: Any, tmp_path: Path) -> None:
    def baseline(folder: Path) -> None:
        until = time.monotonic() + 120
        while not list(folder.glob("?" * 16 + ".py")):
            assert time.monotonic() < until
            time.sleep(0.01)

    journal = tmp_path / "journal.jsonl"
    search = engine_search(live, lambda *_: None, journal, evaluations=1)
    provider = provider_in(tmp_path, baseline=staticmethod(baseline))
    run_on_engine(search, provider)
    assert search.benchmark_provider.queued == 2  # once each
    # What nobody had room for is neither counted nor kept.
    assert len(search.evaluate.space.starts) == 2
    assert len(search.evaluate.costs) == len(lines_of(journal)[1:]) == 1


def test_a_start_that_takes_all_the_time_gives_one_that_works(live: Any, tmp_path: Path) -> None:
    search = engine_search(live, near_the_start, seconds=0.01)
    chosen = run_on_engine(search, provider_in(tmp_path))
    assert len(search.evaluate.costs) <= len(search.evaluate.space.starts)
    assert math.isfinite(min(search.evaluate.costs.values()))
    assert search.evaluate.space.place(chosen) in search.evaluate.costs


def test_what_is_killed_goes_on(live: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    provider = provider_in(tmp_path, slow_s=0.3)
    owner = os.fork()
    if not owner:
        try:
            run_on_engine(engine_search(live, near_the_start, journal, evaluations=12), provider)
        finally:
            os._exit(1)
    for _ in range(1200):
        if journal.exists() and len(journal.read_text().splitlines()) >= 6:
            break
        time.sleep(0.05)
    os.kill(owner, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(owner, 0)[1]) == -signal.SIGKILL
    before = [line for line in journal.read_text().splitlines(keepends=True) if line[-1] == "\n"]
    first = timed(tmp_path)
    left = {Path(line["path"]).parent for line in timings(tmp_path)}
    assert left
    assert all(folder.is_dir() for folder in left)
    search = engine_search(live, near_the_start, journal, evaluations=12)
    chosen = run_on_engine(search, provider_in(tmp_path))
    assert not any(folder.exists() for folder in left)
    lines = lines_of(journal)
    assert journal.read_text().startswith("".join(before))
    assert len({tuple(line["c"]) for line in lines[1:]}) == len(lines) - 1 == 12
    assert len(search.evaluate.costs) == 12
    assert [line["at"] for line in lines[1:]] == sorted(line["at"] for line in lines[1:])
    # The starts are under way before the journal is opened.
    kept = [json.loads(line) for line in before[1:]]
    known = {line["source"] for line in kept if line["how"] != "start"}
    assert known
    finalists = {source for each in read_again(tmp_path) for source in each}
    assert not (set(timed(tmp_path)[len(first) :]) & known) - finalists
    best = min(line["ms"] for line in lines[1:] if line["status"] == "ok")
    assert truth_ms(live, chosen) == best


def test_the_seconds_before_count(live: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    run_on_engine(
        engine_search(live, near_the_start, journal, evaluations=4), provider_in(tmp_path)
    )
    header, *lines = journal.read_text().splitlines()
    late = json.dumps({**json.loads(lines[-1]), "at": 1000.0})
    journal.write_text("\n".join([header, *lines[:-1], late]) + "\n")
    spent: list[float] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        spent.append(evaluate.spent)
        near_the_start(evaluate, space, rng)

    search = engine_search(live, optimizer, journal, seconds=900.0)
    run_on_engine(search, provider_in(tmp_path))
    assert len(lines_of(journal)) == 5
    assert len(search.evaluate.costs) == 4
    assert search.evaluate.used_s == 1000.0
    assert spent == [1.0]


@pytest.fixture
def parts(live: Any) -> tuple[Any, HelionSpace, Config]:
    """What a journal is opened with, and a configuration."""
    search = engine_search(live, near_the_start)
    space = HelionSpace(search.config_gen, np.random.default_rng(1))
    return search, space, space.starts[0]


MEASURED = {"status": "ok", "ms": 1.5, "lo": 1.4, "hi": 1.6, "compile_s": 0.5, "bench_s": 0.1}


def kept(parts: Any, path: Path, *entries: dict[str, Any], compilers: int = 2) -> TuningJournal:
    """A journal with these entries, opened again."""
    search, space, config = parts
    request = JournalRequest(path, "mine")
    journal = request.opened(search, space, compilers)
    for entry in entries:
        journal.append(entry.pop("c", config), 3.0, MEASURED | entry)
    journal.close()
    return request.opened(search, space, compilers)


def test_a_journal_remembers(parts: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = kept(parts, path, {"message": "long " * 100})
    assert journal.known == {parts[2]: Remembered("ok", 1.5, 0.5, 3.0)}
    assert journal.used_s == 3.0
    assert len(lines_of(path)[1]["message"]) == 300
    with pytest.raises(RecordingError, match=r"another one has .* open"):
        JournalRequest(path, "mine").opened(parts[0], parts[1], 2)
    journal.close()
    failed = kept(parts, path, {"status": "timeout", "ms": None})
    assert failed.known == {parts[2]: Remembered("timeout", math.inf, 0.5, 3.0)}
    failed.close()


@pytest.mark.parametrize("key", ["kernel", "arguments", "facts", "values"])
def test_a_journal_of_something_else_is_refused(parts: Any, tmp_path: Path, key: str) -> None:
    path = tmp_path / "journal.jsonl"
    kept(parts, path, {}).close()
    header, *lines = lines_of(path)
    other = "\n".join(map(json.dumps, [{**header, key: ["another"]}, *lines])) + "\n"
    path.write_text(other)
    with pytest.raises(RecordingError, match=rf"differs in {key} .*name another file"):
        JournalRequest(path, "mine").opened(parts[0], parts[1], 2)
    assert path.read_text() == other


def test_a_search_may_begin_with_something_else(parts: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    kept(parts, path, {}).close()
    header, line = lines_of(path)
    path.write_text("\n".join(map(json.dumps, [header | {"starts": [], "compilers": 7}, line])))
    with path.open("a") as file:
        file.write("\n")
    journal = JournalRequest(path, "mine").opened(parts[0], parts[1], 2)
    assert list(journal.known) == [parts[2]]
    journal.close()


@pytest.mark.parametrize(
    "change", [{"c": (0,)}, {"status": "fine"}, {"ms": -1.0}, {"ms": None}, {"compile_s": "2"}]
)
def test_a_line_that_is_none_is_refused(parts: Any, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(RecordingError, match=r"line 3 of .*remove the line"):
        kept(parts, path, {}, change)


def test_a_journal_that_cannot_be_made_is_refused(parts: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="must be a file that can be written"):
        kept(parts, tmp_path / "no" / "journal.jsonl")


def test_a_full_disk_costs_the_journal_and_nothing_else(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamea_gpu.engine import journal as engine_journal

    written = engine_journal._append

    def full(file: Any, entry: Any) -> None:
        if "c" in entry and len(path.read_text().splitlines()) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(file, entry)

    path = tmp_path / "journal.jsonl"
    monkeypatch.setattr(engine_journal, "_append", full)
    search = engine_search(live, near_the_start, path, evaluations=6)
    run_on_engine(search, provider_in(tmp_path))
    assert len(lines_of(path)) == 4
    assert len(search.evaluate.costs) == 6


def test_a_full_scratch_folder_is_no_fault_of_a_configuration(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamea_gpu.frameworks.helion import stages

    def full(path: Path, source: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    own_way: list[Any] = []

    class Provider(provider_in(tmp_path)):  # type: ignore[misc]
        def _give_up(self, error: Exception) -> None:
            own_way.append(str(error))
            raise KeyboardInterrupt

    monkeypatch.setattr(stages, "_write", full)
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_on_engine(engine_search(live, near_the_start, journal, evaluations=6), Provider)
    assert "No space left on device" in own_way[0]
    assert len(lines_of(journal)) == 1


def test_arguments_that_cannot_be_copied_are_left_to_helion(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def give(_: KernelEngine) -> None:
        raise TypeError("cannot pickle a lambda")

    class Provider(provider_in(tmp_path)):  # type: ignore[misc]
        def setup(self) -> None:
            found.append((self.streams, self._why_not))
            raise KeyboardInterrupt

    monkeypatch.setattr(PretendedEngine, "give_arguments", give)
    with pytest.raises(KeyboardInterrupt):
        run_on_engine(engine_search(live, near_the_start), Provider)
    assert found == [(False, "TypeError: cannot pickle a lambda")]


def test_faults_of_the_processes_cost_themselves(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.live.helion.engine.TIMING_S", 1.0)
    killed: list[int] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        folder = evaluate.search.benchmark_provider._engine.folder
        pids = sorted(int(path.name.partition("-")[2]) for path in folder.glob("compiler-*"))
        os.kill(pids[0], signal.SIGKILL)
        killed.append(pids[0])
        near_the_start(evaluate, space, rng)

    journal = tmp_path / "journal.jsonl"
    faults = {3: "hang", 5: "crash", 7: "broken"}
    search = engine_search(live, optimizer, journal, evaluations=14)
    chosen = run_on_engine(search, provider_in(tmp_path, faults=faults))
    assert killed
    lines = lines_of(journal)[1:]
    assert len(lines) == 14
    statuses = [line["status"] for line in lines]
    assert statuses.count("timeout") == 1
    assert statuses.count("runtime_error") == 1  # the crash worked when it was tried again
    best = min(line["ms"] for line in lines if line["status"] == "ok")
    assert truth_ms(live, chosen) == best


def test_ctrl_c_leaves_the_best_and_the_journal(live: Any, tmp_path: Path) -> None:
    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate(space.neighbors(space.starts[0], "adjacent")[:3])
        raise KeyboardInterrupt

    journal = tmp_path / "journal.jsonl"
    search = engine_search(live, optimizer, journal)
    chosen = run_on_engine(search, provider_in(tmp_path))
    lines = lines_of(journal)[1:]
    assert len(lines) == len(search.evaluate.costs)
    best = min(line["ms"] for line in lines if line["status"] == "ok")
    assert truth_ms(live, chosen) == best
    with journal.open("ab") as file:  # and nobody has it open
        file.write(b"")
    assert math.isfinite(best)
    assert isinstance(search.benchmark_provider, EngineProvider)
