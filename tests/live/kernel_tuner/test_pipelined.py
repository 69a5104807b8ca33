"""Kernel Tuner on the engine: its evaluate, its results beside the sequential runner's, faults.

Kernels in C stand in for those in CUDA: they are compiled and run for real, in other processes.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import kernel_tuner
import numpy as np
import pytest
from kernel_tuner import core
from kernel_tuner.backends.backend import GPUBackend
from kernel_tuner.backends.compiler import CompilerFunctions
from kernel_tuner.observers import BenchmarkObserver
from support import submitting

from llamea_gpu.engine import early
from llamea_gpu.engine.pipeline import Outcome, Task
from llamea_gpu.engine.template import ForkedTemplate
from llamea_gpu.errors import BudgetExhausted, SearcherError
from llamea_gpu.live.kernel_tuner import handed, pipelined, strategy
from llamea_gpu.live.kernel_tuner.pipelined import PipelinedStrategy
from llamea_gpu.live.kernel_tuner.runner import PipelinedRunner

pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")

ENDS = ("TheEndOfTheBudgetComesOutOfWait", "TheEndOfTheBudgetComesOutOfSubmit", "ThisAndThat")
# Its time is a formula. Width 3 does not compile, depth 3 is wrong, width 5 crashes, width 6 hangs.
SOURCE = r"""
#include <signal.h>
#include <unistd.h>
extern "C" float scaled(float *out, float *a, int n) {
#if width == 3
    #error "the width must be a power of two"
#endif
    if (width == 5) raise(SIGTRAP);
    if (width == 6) sleep(60);
    for (int i = 0; i < n; i++) out[i] = 2 * a[i] + (depth == 3);
    return 1.0f + 0.5f * (width != 4) + 0.25f * (depth != 2) + 0.01f * width;
}
"""


@pytest.fixture(autouse=True)
def _kernels_in_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("tuning is tested on kernels in C: install g++")
        pytest.skip("no g++")
    monkeypatch.setattr(handed, "BACKENDS", {"C"})
    monkeypatch.chdir(tmp_path)  # where compilers leave what fails


def optimizer(call: Callable[[Any, Any], None]) -> Callable[[], Any]:
    return lambda: lambda evaluate, space, rng: call(evaluate, space)


def everything(evaluate: Any, space: Any) -> None:
    evaluate(space.pool(1000))


def tuned(
    given: PipelinedStrategy,
    widths: Iterable[int] = (1, 2, 4, 8),
    depths: Iterable[int] = (1, 2),
    budget: dict[str, Any] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    a = np.random.default_rng(0).random(64, dtype=np.float32)
    arguments = {
        "kernel_source": SOURCE,
        "arguments": [np.zeros_like(a), a, np.int32(64)],
        "tune_params": {"width": list(widths), "depth": list(depths)},
        "answer": [2 * a, None, None],
        "quiet": True,
        "lang": "C",
        **more,
    }
    results, _ = kernel_tuner.tune_kernel(
        "scaled",
        problem_size=64,
        iterations=3,
        strategy=given,
        strategy_options=budget or {},
        **arguments,
    )
    return list(results)


def key(result: dict[str, Any]) -> tuple[int, int]:
    return result["width"], result["depth"]


def status(result: dict[str, Any]) -> str:
    return str(result.get("__error__", "ok"))


class Formula:
    """Stands in for the processes: measures what was submitted last first, one a wait."""

    def __init__(self) -> None:
        self.queue: list[Task] = []
        self.seen: list[tuple[Any, ...]] = []

    def submit(self, tasks: Iterable[Task]) -> None:
        self.queue += tasks

    def wait(self, deadline: float | None = None) -> list[Outcome]:
        if not self.queue:
            return []
        task = self.queue.pop()
        self.seen.append(task.payload)
        time_ms = float(sum((i + 1) * v for i, v in enumerate(task.payload)))
        details = {"result": {"time": time_ms, "times": [time_ms], "timestamp": "now"}}
        seconds = {"compile": 0.5, "check": 0.25, "benchmark": 0.125}
        if time_ms % 7 == 0:
            return [Outcome(task.point, "timeout", 0.0, 0.0, {"message": "over"}, seconds)]
        return [Outcome(task.point, "ok", 0.0, 0.0, {**details, "seconds": seconds}, {})]


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> Formula:
    stand_in = Formula()

    @contextmanager
    def started(self: Any, space: Any, runner: Any, options: Any) -> Iterator[PipelinedRunner]:
        yield PipelinedRunner(runner, stand_in, 4)  # type: ignore[arg-type]

    monkeypatch.setattr(PipelinedStrategy, "_started", started)
    return stand_in


@pytest.mark.parametrize("check", submitting.CHECKS)
def test_what_the_contract_promises(formula: Formula, check: str) -> None:
    passed: list[str] = []

    def checked(evaluate: Any, space: Any) -> None:
        getattr(submitting, check)()(evaluate, space, np.random.default_rng(1))
        passed.append(check)

    made = PipelinedStrategy(check, optimizer(checked), {}, 1)
    tuned(made, widths=range(1, 9), depths=range(1, 9))
    assert (passed, made.why_not) == ([check], "")
    assert len(set(formula.seen)) == len(formula.seen)


@pytest.mark.parametrize("check", ENDS)
def test_evaluations_end_a_run(formula: Formula, check: str) -> None:
    def ends(evaluate: Any, space: Any) -> None:
        with pytest.raises(BudgetExhausted):
            getattr(submitting, check)()(evaluate, space, np.random.default_rng(1))

    made = PipelinedStrategy(check, optimizer(ends), {}, 1)
    results = tuned(made, range(1, 9), range(1, 9), {"max_fevals": 20})
    assert len(results) == 20 == len(set(map(key, results))) == len(formula.seen)
    failed = {key(result) for result in results if status(result) != "ok"}
    assert failed == {each for each in map(key, results) if (each[0] + 2 * each[1]) % 7 == 0}


def test_seconds_end_a_run_while_nothing_comes(
    formula: Formula, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = formula.wait

    def slowly(deadline: float | None = None) -> list[Outcome]:
        assert deadline is not None
        if len(formula.seen) < 3:
            return measure()
        time.sleep(max(deadline - time.monotonic(), 0))
        return []

    monkeypatch.setattr(formula, "wait", slowly)
    made = PipelinedStrategy("everything", optimizer(everything), {}, 1)
    assert len(tuned(made, budget={"time_limit": 2})) == 3


@pytest.fixture(scope="module")
def both() -> dict[str, list[dict[str, Any]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handed, "BACKENDS", {"C"})
        found = {}
        for engine in ("pipelined", "framework"):
            made = PipelinedStrategy("all", optimizer(everything), {}, 1, engine=engine)  # type: ignore[arg-type]
            metrics = {"rate": lambda result: 1 / result["time"]}
            found[engine] = tuned(made, metrics=metrics)
            assert made.why_not == ""
        return found


def test_results_are_those_of_the_sequential_runner(both: Any) -> None:
    engine, sequential = both["pipelined"], both["framework"]
    assert list(map(key, engine)) == list(map(key, sequential))
    for ours, theirs in zip(engine, sequential, strict=True):
        assert set(ours) == set(theirs)
        assert ours["times"] == theirs["times"]
        assert (ours["time"], ours["rate"]) == (theirs["time"], theirs["rate"])
        for name in ("compile_time", "verification_time", "benchmark_time"):
            assert ours[name] > 0
        assert ours["timestamp"][:10] == theirs["timestamp"][:10]


def test_a_cache_file_is_continued_by_either(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache.json")
    seen = []
    for engine, depths in (("pipelined", (2,)), ("framework", (1, 2)), ("pipelined", (1, 2))):

        def some(evaluate: Any, space: Any, depths: Any = depths) -> None:
            evaluate([c for c in space.sample(99) if space.values[1][c[1]] in depths])

        made = PipelinedStrategy("some", optimizer(some), {}, 1, engine=engine)  # type: ignore[arg-type]
        seen.append(tuned(made, (1, 2), cache=cache))
    assert [len(results) for results in seen] == [2, 4, 4]
    known = {key(result) for result in seen[0]}
    assert {key(r) for r in seen[1] if r["compile_time"] == 0} == known
    assert all(result["compile_time"] == 0 for result in seen[2])
    assert len({(key(r), r["time"]) for results in seen for r in results}) == 4


def test_whatever_a_configuration_does_is_its_own_failure() -> None:
    made = PipelinedStrategy("all", optimizer(everything), {}, 1, timeout_s=5, processes=2)
    before = os.getpid()
    results = {
        key(result): result for result in tuned(made, (1, 2, 3, 4, 5, 6), (2, 3), verify=None)
    }
    assert (os.getpid(), made.why_not) == (before, "")
    found = {each: status(result) for each, result in results.items() if each[1] == 2}
    assert found == {
        **{(width, 2): "ok" for width in (1, 2, 4)},
        (3, 2): "CompilationFailedConfig",
        (5, 2): "RuntimeFailedConfig",
        (6, 2): "RuntimeFailedConfig",
    }
    said = {each: result.get("llamea_gpu_message", "") for each, result in results.items()}
    assert "verification failed" in said[1, 3]
    assert "signal 5" in said[5, 2]
    assert "over 5 s" in said[6, 2]
    assert results[6, 2]["compile_time"] > 0  # of the phase that was over
    assert results[4, 2]["time"] == pytest.approx(1.04)


class Emulated(CompilerFunctions, GPUBackend):
    """A GPU whose kernels are functions in C."""

    units: ClassVar = {"time": "ms"}
    copy_constant_memory_args = copy_shared_memory_args = copy_texture_memory_args = print

    def __init__(self, device: int, iterations: int, compiler_options: Any, observers: Any) -> None:
        CompilerFunctions.__init__(self, iterations, compiler_options, observers=observers)
        self.device = device
        self.name = f"GPU {device}"


def test_an_emulated_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed, "BACKENDS", {"CUDA"})
    monkeypatch.setattr(core, "_select_default_cuda_backend", lambda: Emulated)
    seen = tmp_path / "seen"

    def verify(answer: Any, result: Any, atol: float) -> bool:
        with seen.open("a") as file:
            file.write(f"{os.getpid()} {atol} {result[1:]}\n")
        return bool(np.allclose(answer[0], result[0], atol=atol))

    found = {}
    with ForkedTemplate(tmp_path / "log") as template:
        monkeypatch.setattr(pipelined, "early_template", lambda: template)
        for engine in ("framework", "pipelined"):
            options: dict[str, Any] = {"engine": engine, "processes": 2, "tolerant": True}
            made = PipelinedStrategy("all", optimizer(everything), {}, 1, **options)
            more = {"device": 3, "verify": verify, "atol": 0.25, "compiler_options": ["-O1"]}
            results = tuned(made, (1, 2, 3), (2, 3), lang="CUDA", **more)
            assert (made.why_not, made.device) == ("", "GPU 3")
            found[engine] = {
                key(each): (status(each), each["time"] if status(each) == "ok" else None)
                for each in results
            }
    assert found["pipelined"] == found["framework"]
    assert {said for said, _ in found["pipelined"].values()} == {
        *("ok", "CompilationFailedConfig", "RuntimeFailedConfig")
    }
    here, there = [], []
    for line in seen.read_text().splitlines():
        pid, said = line.split(" ", 1)
        (here if int(pid) == os.getpid() else there).append(said)
    assert set(here) == set(there) == {"0.25 [None, None]"}


def test_a_process_that_is_killed_as_it_compiles_costs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "killed"

    def source(parameters: Any) -> str:
        if parameters["width"] == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return SOURCE

    made = PipelinedStrategy("all", optimizer(everything), {}, 1, processes=2)
    results = tuned(made, (1, 2, 4), (2,), kernel_source=source)
    assert mark.exists()
    assert [status(result) for result in results] == ["ok"] * 3


def processes() -> str:
    template = early.early_template()
    assert template is not None
    return Path(f"/proc/{template.pid}/task/{template.pid}/children").read_text()


def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    def interrupted(evaluate: Any, space: Any) -> None:
        evaluate.submit(space.sample(4))
        evaluate.wait()
        assert processes()
        raise KeyboardInterrupt

    made = PipelinedStrategy("interrupted", optimizer(interrupted), {}, 1, processes=2)
    with pytest.raises(KeyboardInterrupt):
        tuned(made, (1, 6), (1, 2), answer=None)
    assert processes() == ""


class Observer(BenchmarkObserver):
    def get_results(self) -> dict[str, Any]:
        return {}


def test_where_the_engine_cannot_kernel_tuner_measures_and_the_reason_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()

    def verify(answer: Any, result: Any) -> bool:
        with lock:
            return True

    for more, said in (({"observers": [Observer()]}, "observers"), ({"verify": verify}, "lock")):
        made = strategy("random_search", seed=1)
        results = tuned(made, (1,), (2,), {"max_fevals": 1}, quiet=False, **more)
        assert math.isfinite(results[0]["time"])
        assert said in made.why_not
        assert said in capsys.readouterr().out
    monkeypatch.setattr(handed, "BACKENDS", {"CUDA"})
    made = strategy("random_search", seed=1)
    tuned(made, (1,), (2,), {"max_fevals": 1})
    assert "kernels in C" in made.why_not
    assert capsys.readouterr().out == ""  # it was asked to be quiet
    with pytest.raises(SearcherError, match=r"'pipelined' or 'framework', but got 'ray'"):
        strategy("random_search", engine="ray")  # type: ignore[arg-type]


class OnlyHere:
    def __init__(self, source: str, pid: int) -> None:
        self.source, self.pid = source, pid

    def __call__(self, parameters: Any) -> str:
        return self.source

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["pid"] != os.getpid():
            raise RuntimeError("only there")
        self.__dict__.update(state)


def test_processes_that_do_not_start_leave_it_to_kernel_tuner() -> None:
    made = PipelinedStrategy("all", optimizer(everything), {}, 1, processes=2)
    with pytest.warns(UserWarning, match="own runner measures: .*only there"):
        results = tuned(made, (1, 2), (2,), kernel_source=OnlyHere(SOURCE, os.getpid()))
    assert "only there" in made.why_not
    assert [status(result) for result in results] == ["ok"] * 2


def test_arrays_are_shared_and_may_be_written(tmp_path: Path) -> None:
    grid = np.arange(12.0).reshape(3, 4)
    call = {"arguments": [grid, grid[:, ::2], np.int32(3)], "name": lambda x: x + 1}
    with handed.shared_file(tmp_path) as path:
        assert handed.save_call(path, call) >= grid.nbytes
        one, two = (handed.load_call(path) for _ in range(2))
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []
    one["arguments"][0][:] = 7
    for loaded, first in ((one, 7), (two, 0)):
        array, strided, scalar = loaded["arguments"]
        assert array[0, 0] == first
        assert strided.tolist() == grid[:, ::2].tolist()
        assert (scalar, type(scalar)) == (3, np.int32)
        assert loaded["name"](1) == 2


@pytest.mark.parametrize(
    ("visible", "device", "then", "number"),
    [
        (None, 2, "2", 0),
        ("3, 1,0", 1, "1", 0),
        ("GPU-1b,GPU-2c", 1, "GPU-2c", 0),
        ("3,1", 2, "3,1", 2),
        ("", 0, "", 0),
    ],
)
def test_a_process_that_measures_sees_its_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int, then: str, number: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert handed.see_only(device) == number
    assert os.environ["CUDA_VISIBLE_DEVICES"] == then
