"""``tune`` and the strategies on real Kernel Tuner: kernels in C, compiled and run here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_tuner
import pytest
from support.fake_openai import FakeOpenAI, Reply
from support.imports import hidden_from_processes
from support.kernel_tuner_runs import constrained_recording
from support.model_server import Held, Interrupted, answer, example_in, prompt_of
from support.tuning import Simulation

from llamea_gpu.errors import RecordingError, SearcherError
from llamea_gpu.live import TuneSettings, TuningResult, tune_script
from llamea_gpu.live.kernel_tuner import handed, strategy

pytestmark = [
    pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning"),
    pytest.mark.filterwarnings("ignore:tuning went on in spite of:UserWarning"),
]
# Its time is a formula, so that the best is known; width 3 does not compile, depth 3 is wrong.
SCRIPT = '''
from pathlib import Path
import numpy as np

SOURCE = r"""
extern "C" float scaled(float *out, float *a, int n) {
#if width == 3
    #error "the width must be a power of two"
#endif
    for (int i = 0; i < n; i++) out[i] = 2 * a[i] + (depth == 3);
    return 1.0f + 0.5f * (width != 4) + 0.25f * (depth != 2) + 0.01f * width;
}
"""
INFO = {"name": "scaled-64", "default_configuration": {"width": 1, "depth": 1}}
if Path(__file__).with_name("mark").exists():
    Path(__file__).with_name("mark").write_text("executed")


def tune_kernel_arguments():
    a = np.random.default_rng(0).random(64, dtype=np.float32)
    return dict(
        kernel_name="scaled", kernel_source=SOURCE, problem_size=64, lang="C",
        arguments=[np.zeros_like(a), a, np.int32(64)],
        tune_params={"width": [1, 2, 3, 4, 8], "depth": [1, 2, 3]},
        answer=[2 * a, None, None], restrictions=["width * depth < 24"],
    )
'''
BEST = {"width": 4, "depth": 2}


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    if shutil.which("g++") is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("tuning is tested on kernels in C: install g++")
        pytest.skip("no g++")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "scaled.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(params=["the engine", "Kernel Tuner's runner"])
def measuring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What measures: kernels in C are not the engine's, but here they may be."""
    if request.param == "the engine":
        monkeypatch.setattr(handed, "BACKENDS", {"C"})


@pytest.fixture
def no_torch(tmp_path: Path) -> Iterator[None]:
    """Commands do without PyTorch, whose import takes most of their time; tests here have it."""
    (tmp_path / "hidden").mkdir()
    with hidden_from_processes("torch", tmp_path / "hidden"):
        yield


def best_and_others(body: dict[str, Any]) -> Reply:
    return answer(BEST, {"width": 3, "depth": 1}, {"width": 4, "depth": 1})


def tuned(script: Path, spec: str, **more: Any) -> TuningResult:
    return tune_script(script, spec, TuneSettings(iterations=1, **more))


@pytest.mark.usefixtures("measuring")
def test_a_model_tunes_a_live_kernel(script: Path, server: FakeOpenAI) -> None:
    server.default = best_and_others
    found = tuned(script, "llm:m?rounds=2&initial=2&patience=9&fallback=none")
    assert found.best is not None
    assert found.best.configuration == BEST
    assert found.best.time_ms == pytest.approx(1.04)
    assert found.default_ms == pytest.approx(1.76)
    assert found.failed >= 1
    first, second = (prompt_of(received.body) for received in server.received)
    assert "return 1.0f + 0.5f" in first  # the kernel's source
    assert "shape [64], float32" in first
    assert "restriction: width * depth < 24" in first
    assert example_in(server.received[0].body) == {"width": 1, "depth": 1}
    assert "does not compile" in second


@pytest.mark.usefixtures("measuring")
def test_wrong_results_and_compile_errors_do_not_end_a_run(script: Path) -> None:
    found = tuned(script, "random_search")
    wrong = [e.configuration for e in found.measured if e.time_ms == float("inf")]
    assert {c["width"] for c in wrong if c["depth"] != 3} == {3}
    assert {c["depth"] for c in wrong if c["width"] != 3} == {3}
    assert len(found.measured) == 14
    assert found.best is not None
    assert found.best.configuration == BEST


BREAKS = """
class Mine:
    def __call__(self, evaluate, space, rng):
        for configs in ([(0, 0)], [(1, 0)], [(4, 0)], [(1, 1)]):
            evaluate(configs)
"""


def test_a_device_that_answers_no_more_ends_a_run(script: Path, tmp_path: Path) -> None:
    """Here every result is wrong once a kernel of width 8 has run."""
    mark = f'"{tmp_path / "broken"}"'
    source = f"""
    if (width == 8) fclose(fopen({mark}, "w"));
    FILE *broken = fopen({mark}, "r");
    for (int i = 0; i < n; i++) out[i] = 2 * a[i] + (broken != 0);"""
    text = script.read_text().replace("    for (int i = 0", source + "\n    for (int i = 1", 1)
    script.write_text(text.replace('extern "C"', '#include <stdio.h>\nextern "C"'))
    mine = tmp_path / "mine.py"
    mine.write_text(BREAKS)
    found = tuned(script, f"{mine}:Mine")
    assert [tuple(each.configuration.values()) for each in found.measured] == [(1, 1), (2, 1)]
    assert "verification failed" in found.trouble


def test_the_kernel_is_measured_while_the_model_thinks(script: Path, server: FakeOpenAI) -> None:
    held = Held(best_and_others)
    server.default = held
    found = tune_script(
        script,
        "llm:m?rounds=1&initial=2&fallback=none",
        TuneSettings(iterations=1),
        lambda told: held.happened.set(),
    )
    assert held.in_time == [True]
    assert found.best is not None
    assert found.best.configuration == BEST


@pytest.mark.parametrize(
    "following", ["kernel_tuner:genetic_algorithm?popsize=8", "iterated_local_search"]
)
def test_a_hybrid_goes_on_with_what_was_measured(
    script: Path, server: FakeOpenAI, following: str
) -> None:
    server.default = best_and_others
    found = tuned(script, f"hybrid:llm:m?rounds=1&initial=2+{following}", evaluations=12)
    configurations = [tuple(each.configuration.values()) for each in found.measured]
    assert len(set(configurations)) == len(configurations) > 6
    assert tuple(BEST.values()) in configurations[:6]
    assert found.trouble == ""


def test_a_server_that_is_down_leaves_the_rest_to_a_local_search(
    script: Path, server: FakeOpenAI
) -> None:
    server.close()
    found = tuned(script, "llm:m?initial=2", evaluations=9)
    assert "could not be reached" in found.trouble
    assert len(found.measured) == 9


def test_a_failing_optimizer_leaves_what_was_measured(script: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "class Mine:\n"
        '    """Fails after three."""\n\n'
        "    def __call__(self, evaluate, space, rng):\n"
        "        evaluate([(0, 0), (1, 0), (1, 1)])\n"
        '        raise RuntimeError("no idea")\n'
    )
    with pytest.warns(UserWarning, match="no idea"):
        found = tuned(script, f"{mine}:Mine")
    assert len(found.measured) == 3
    assert "no idea" in found.trouble


@pytest.mark.usefixtures("measuring")
def test_ctrl_c_ends_with_the_best_so_far(script: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(BREAKS)
    found = tune_script(script, f"{mine}:Mine", TuneSettings(iterations=1), Interrupted(at=2))
    assert [tuple(each.configuration.values()) for each in found.measured] == [(1, 1), (2, 1)]
    assert found.trouble == "interrupted"
    assert found.device


ON_THE_ENGINE = """
from llamea_gpu.cli import main
from llamea_gpu.live.kernel_tuner import handed
handed.BACKENDS.add("C")
main()
"""


def entries(journal: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, journal.read_bytes().split(b"\n")[1:-1]))


@pytest.mark.usefixtures("no_torch")
def test_killed_it_goes_on_from_its_journal(script: Path, tmp_path: Path) -> None:
    text = script.read_text().replace('extern "C"', '#include <unistd.h>\nextern "C"')
    script.write_text(text.replace("    for (int i", "    usleep(150000);\n    for (int i"))
    journal = tmp_path / "journal"
    command = [sys.executable, "-c", ON_THE_ENGINE, "tune", str(script), "--with", "random_search"]
    command += ["--iterations", "1", "--journal", str(journal)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (journal.exists() and len(entries(journal)) >= 3):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.kill()
    child.wait()
    before = entries(journal)
    assert len(before) < 12
    lines = journal.read_text().splitlines(keepends=True)
    place = next(i for i, entry in enumerate(before) if entry["status"] == "ok")
    marked = {**before[place], "ms": 0.5}  # faster than any: nobody measures it again
    lines[1 + place] = json.dumps(marked) + "\n"
    journal.write_text("".join(lines) + '{"c": [0, 0')  # which the kill cut short

    found = tuned(script, "random_search", journal=journal, evaluations=12)
    assert len(found.measured) == 12 == len(entries(journal))
    assert len({tuple(each.configuration.values()) for each in found.measured}) == 12
    values = [[1, 2, 3, 4, 8], [1, 2, 3]]
    known = [[v[i] for v, i in zip(values, e["c"], strict=True)] for e in before]
    assert [list(e.configuration.values()) for e in found.measured[: len(before)]] == known
    assert found.best == found.measured[place]
    assert found.best.time_ms == 0.5
    elapsed = [each.elapsed_s for each in found.measured]
    assert elapsed == sorted(elapsed)
    assert elapsed[: len(before)] == [entry["at"] for entry in before]
    again = tuned(script, "random_search", journal=journal, evaluations=12)
    assert [e.configuration for e in again.measured] == [e.configuration for e in found.measured]
    assert [e.time_ms for e in again.measured] == [e.time_ms for e in found.measured]


def test_a_journal_of_something_else_is_refused(script: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    tuned(script, "random_search", journal=journal, evaluations=2)
    kept = journal.read_bytes()
    first = entries(journal)[0]
    for wrong in ({**first, "c": [9, 9]}, {**first, "status": "?"}, {**first, "at": -1}, {"c": 1}):
        journal.write_bytes(kept + json.dumps(wrong).encode() + b"\n")
        with pytest.raises(RecordingError, match=r"must hold configurations .*line 4"):
            tuned(script, "random_search", journal=journal)
    journal.write_bytes(kept)
    script.write_text(script.read_text().replace("1.0f + 0.5f", "1.0f + 0.6f"))
    with pytest.raises(RecordingError, match="differs in kernel_source"):
        tuned(script, "random_search", journal=journal)
    assert journal.read_bytes() == kept
    with pytest.raises(RecordingError, match="must be a file that can be written"):
        tuned(script, "random_search", journal=tmp_path)


def test_a_kernel_of_which_nothing_works_is_an_error(script: Path) -> None:
    script.write_text(script.read_text().replace("#if width == 3", "#if 1"))
    with pytest.raises(SearcherError, match="none of 4 configurations works"):
        tuned(script, "random_search", evaluations=4)


@pytest.mark.usefixtures("no_torch")
def test_the_command_prints_code_to_paste(script: Path, server: FakeOpenAI) -> None:
    server.default = best_and_others
    command = [sys.executable, "-m", "llamea_gpu", "tune", str(script)]
    command += ["--with", "hybrid:llm:m?rounds=1&initial=3+kernel_tuner:random_sample"]
    command += ["--evaluations", "13", "--iterations", "1"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # nothing else was printed there
    assert document["best"]["configuration"] == BEST
    values: dict[str, Any] = {}
    exec(document["code"], values)
    assert values["params"] == BEST
    assert set(document) == {
        *("searcher", "framework", "kernel", "device", "seed", "clock", "elapsed_s"),
        *("evaluations", "failed", "default_ms", "optimum_ms", "best", "top", "trace"),
        *("code", "start_s", "trouble"),
    }
    assert document["evaluations"] == len(document["trace"])
    elapsed = [each["elapsed_s"] for each in document["trace"]]
    assert elapsed == sorted(elapsed)


def test_a_script_is_recognised_without_being_run(script: Path) -> None:
    from llamea_gpu.live import framework_of

    mark = script.with_name("mark")
    mark.write_text("")
    assert framework_of(script) == "kernel_tuner"
    assert mark.read_text() == ""
    both = script.with_name("both.py")
    both.write_text(SCRIPT + "\ndef helion_kernel(): ...\n")
    neither = script.with_name("neither.py")
    neither.write_text("x = 1\n")
    for path, said in ((both, "both"), (neither, "neither")):
        with pytest.raises(SearcherError, match=said):
            framework_of(path)


def test_a_model_is_a_strategy(server: FakeOpenAI, tmp_path: Path) -> None:
    """In simulation mode, where nobody but Kernel Tuner's runner describes the kernel."""
    recording = constrained_recording()
    space = recording.space
    order = recording.time_ms.argsort()[:5].tolist()
    best = [space.value_dict(space.configuration(row)) for row in order]
    server.default = lambda body: answer(*best)
    simulation = Simulation(recording, tmp_path)
    made = strategy("llm:m", seed=3, rounds=1, initial=4, fallback="none")
    rows = simulation.rows(simulation.tune(made, 30))
    assert set(order) <= set(rows)
    assert len(rows) == 9
    assert "toy" in prompt_of(server.received[0].body)
    with pytest.raises(SearcherError, match="did you mean rounds"):
        strategy("llm:m", roundz=1)
    assert kernel_tuner.__version__
