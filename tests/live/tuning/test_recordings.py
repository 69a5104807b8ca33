"""``llamea-gpu tune --space``: from the command line to the code to paste."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import llamea, process
from support.fake_openai import FakeOpenAI
from support.model_server import answer
from support.recordings import small_recording
from typer.testing import CliRunner

from llamea_gpu.cli import app
from llamea_gpu.errors import SearcherError
from llamea_gpu.live import TuneSettings, tune_recording
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import Recording

BEST = {"block": 64, "warps": 2, "stages": 2, "mode": "flat"}
GENERATED = '''
class Mine:
    """Its first sample, then its neighbours."""

    def __call__(self, evaluate, space, rng):
        start = space.sample(4)
        costs = evaluate(start)
        best = start[costs.index(min(costs))]
        while True:
            evaluate(space.neighbors(best) + space.sample(4))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_recording(small_recording(workers=4), tmp_path / "small.parquet", "native")
    return tmp_path


def test_a_hybrid_from_the_command_line_to_json(server: FakeOpenAI, folder: Path) -> None:
    """FIRST asks the model in a worker process, NEXT runs in the sandbox."""
    server.default = lambda body: answer(BEST)
    mine = folder / "mine.py"
    mine.write_text(GENERATED)
    space = folder / "small.parquet"
    spec = f"hybrid:llm:m?rounds=1&initial=3+{mine}:Mine"
    options = ("--with", spec, "--evaluations", 20, "--json", "--top", 2)
    done = process("tune", "--space", space, *options)
    document = json.loads(done.stdout)
    assert document["best"]["configuration"] == BEST
    assert document["best"]["time_ms"] == document["optimum_ms"]
    assert (document["evaluations"], len(document["trace"]), len(document["top"])) == (20, 20, 2)
    values: dict[str, Any] = {}
    exec(document["code"], values)
    assert values["params"] == BEST
    assert document["trouble"] == ""


def test_a_table_and_what_went_wrong(server: FakeOpenAI, folder: Path) -> None:
    server.close()
    done = llamea("tune", "--space", folder / "small.parquet", "--with", "llm:m?initial=3")
    assert "above the optimum" in done.stdout
    assert "params = {" in done.stdout
    assert "could not be reached" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "takes a kernel script"),
        (["matmul", "--space", "small"], "takes a kernel script"),
        (["no_such_kernel"], "helion/matmul"),
        (["helion/matmul"], "needs a GPU"),
    ],
)
def test_mistakes_are_one_message(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["tune", "--with", "random_search", *arguments])
    assert isinstance(done.exception, SearcherError)
    assert said in str(done.exception)


def helion_like(names: tuple[str, ...], default_config: str) -> Recording:
    recording = small_recording()
    info = replace(
        recording.info,
        framework="helion 1.5.0",
        provenance={"default_config": default_config},
    )
    space = type(recording.space)(names, recording.space.values, recording.space.configurations)
    return replace(recording, space=space, info=info)


def code(recording: Recording) -> str:
    return tune_recording(recording, "random_search", TuneSettings(evaluations=120)).code


def test_code_of_a_helion_recording_is_the_whole_configuration() -> None:
    config = '{"block_sizes": [1, 32], "num_warps": 4, "num_stages": 1, "pid_type": "flat"}'
    names = ("block_sizes[1]", "num_warps", "num_stages", "pid_type")
    assert code(helion_like(names, config)) == (
        "@helion.kernel(config=helion.Config(block_sizes=[1, 64], num_stages=2, num_warps=2, "
        "pid_type='flat'))"
    )
    own_names = helion_like(("block_m", "num_warps", "num_stages", "pid_type"), config)
    assert code(own_names).startswith("slots = {'block_m': 64")
    assert code(helion_like(names, '["not", "a config"]')).startswith("slots = {")


def test_a_recording_is_tuned_by_evaluations_or_seconds() -> None:
    recording = small_recording()
    by_seconds = tune_recording(recording, "random_search", TuneSettings(seconds=9))
    assert by_seconds.clock == "sequential"
    assert 7 < by_seconds.measured[-1].elapsed_s < 11  # what has begun is finished
    with pytest.raises(SearcherError, match="got both"):
        tune_recording(recording, "random_search", TuneSettings(seconds=9, evaluations=9))
    for wrong in ({"evaluations": 0}, {"seconds": float("nan")}, {"effort": "none"}):
        with pytest.raises(SearcherError):
            TuneSettings(**wrong)  # type: ignore[arg-type]
