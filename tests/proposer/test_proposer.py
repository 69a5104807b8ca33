"""The proposer against a real HTTP server that speaks both protocols, and misbehaves."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_openai import FakeOpenAI, Reply, completion, error, json_reply
from support.recordings import small_recording

from llamea_gpu.bench import BenchSettings, make_plan
from llamea_gpu.bench.analysis import analyse
from llamea_gpu.errors import SearcherError
from llamea_gpu.llm import BatchExchange, load_recording
from llamea_gpu.runner import Runner
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace

DEFAULT = {"block": 16, "warps": 1, "stages": 1, "mode": "flat"}
BEST = {"block": 64, "warps": 2, "stages": 2, "mode": "flat"}
GOOD = {"block": 128, "warps": 2, "stages": 2, "mode": "flat"}
# Nothing but the proposer's own steps decides how many configurations are measured.
ALONE = "fallback=none&initial=0"


def described(workers: int = 16) -> Recording:
    recording = small_recording(workers=workers)
    info = replace(
        recording.info,
        device="NVIDIA H200",
        kernel_source="def toy(x):\n    return x + 1\n",
        arguments=({"shape": [64, 32], "dtype": "torch.float16"},),
        default_configuration=DEFAULT,
        references_ms={"library": 123.456},
    )
    return replace(recording, info=info)


@pytest.fixture(scope="module")
def task() -> Task:
    return replace(Task.build(described()), budget_s=1e9)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as opened:
        monkeypatch.setenv("LLAMEA_GPU_LLM_BASE_URL", opened.base_url)
        monkeypatch.setenv("LLAMEA_GPU_LLM_RETRIES", "0")
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-must-not-be-seen")
        yield opened


def run(spec: str, task: Task, seed: int = 1) -> Trace:
    return run_optimizer(resolve(spec).build, task, seed, cpu_s=None)  # type: ignore[union-attr]


def row(task: Task, config: dict[str, Any]) -> int:
    space = task.recording.space
    pairs = zip(space.names, space.values, strict=True)
    return space.row(tuple(values.index(config[name]) for name, values in pairs))


def proposals(*configs: dict[str, Any], **more: Any) -> Reply:
    return completion(json.dumps({"analysis": "so", "configs": configs}), **more)


def response(text: str) -> Reply:
    """The same in the Responses API."""
    return json_reply(
        {
            "model": "served",
            "status": "completed",
            "output": [
                {"type": "reasoning", "content": []},
                {"type": "message", "content": [{"type": "output_text", "text": text}]},
            ],
            "usage": {"input_tokens": 100, "output_tokens": 50},
        }
    )


def random_answers(task: Task) -> Callable[[dict[str, Any]], Reply]:
    """Three random configurations an answer, the same for the same number of the request."""
    space, rng = task.recording.space, np.random.default_rng(5)

    def answer(body: dict[str, Any]) -> Reply:
        rows = rng.choice(space.size, 3, replace=False).tolist()
        return proposals(*(space.value_dict(space.configuration(row)) for row in rows))

    return answer


def prompt_of(body: dict[str, Any]) -> str:
    messages = body.get("messages") or body["input"]
    return "\n".join(message["content"] for message in messages)


# --- protocols ---------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("structured", [True, False])
def test_what_the_model_proposes_is_measured(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, api: str, structured: bool
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_API", api)
    text = json.dumps({"configs": [BEST, GOOD]})
    server.default = lambda body: completion(text) if api == "chat" else response(text)
    spec = f"llm:some-model?rounds=1&max_tokens=99&temperature=0.5&structured={structured}&{ALONE}"
    trace = run(spec, task)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert trace.rows.tolist() == [row(task, config) for config in (DEFAULT, BEST, GOOD)]
    (received,) = server.received
    body = received.body
    assert received.path == ("/v1/chat/completions" if api == "chat" else "/v1/responses")
    assert (body["model"], body["temperature"]) == ("some-model", 0.5)
    assert body["max_tokens" if api == "chat" else "max_output_tokens"] == 99
    schema = body.get("response_format", {}).get("json_schema") or body.get("text", {}).get(
        "format"
    )
    assert (schema is not None) == structured
    if schema:
        items = schema["schema"]["properties"]["configs"]["items"]
        assert items["properties"]["warps"] == {"type": "integer", "enum": [1, 2, 4, 8]}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_server_without_structured_outputs_is_asked_without(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_API", api)
    field = "response_format" if api == "chat" else "text"
    named = "response_format" if api == "chat" else "text.format"
    text = f"Here:\n```json\n{json.dumps([BEST])}\n```"

    def answer(body: dict[str, Any]) -> Reply:
        if field in body:
            return error(400, f"{named} is not supported", param=named)
        return completion(text) if api == "chat" else response(text)

    server.default = answer
    trace = run(f"llm:m?rounds=2&{ALONE}", task)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert row(task, BEST) in trace.rows
    assert [field in each.body for each in server.received] == [True, False, False]


def test_the_prompt_describes_the_recording_and_not_what_it_measured(
    server: FakeOpenAI, task: Task
) -> None:
    server.default = lambda body: proposals(BEST)
    run("llm:m?rounds=2&fallback=none&initial=3", task)
    first, second = (prompt_of(each.body) for each in server.received)
    for said in ("def toy(x):", "shape [64, 32], torch.float16", "132 SMs", "120 configurations"):
        assert said in first
        assert said in second
    assert "Nothing has been measured yet" in first
    assert "5 configurations measured" in second
    assert "123.456" not in first + second
    assert "a-key-that" not in json.dumps([each.body for each in server.received])


# --- the search --------------------------------------------------------------------------------


def test_the_default_and_random_ones_are_measured_while_the_request_is_under_way(
    server: FakeOpenAI, task: Task
) -> None:
    """The server answers only once six configurations have been measured."""
    measured = threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        return proposals(BEST) if measured.wait(20) else error(400, "nobody measured meanwhile")

    class Watched:
        def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
            seen = []

            class Evaluate:
                parallel = evaluate.parallel
                spent = 0.0

                def __call__(self, configs: Sequence[Any]) -> list[float]:
                    seen.extend(configs)
                    if len(seen) >= 6:
                        measured.set()
                    return evaluate(configs)  # type: ignore[no-any-return]

            inner = resolve("llm:m?rounds=1&initial=6&fallback=none").build()  # type: ignore[union-attr]
            inner(Evaluate(), space, rng)

    server.default = answer
    trace = run_optimizer(Watched, task, 1, cpu_s=None)
    assert trace.error is None
    assert trace.rows[0] == row(task, DEFAULT)
    assert trace.rows[-1] == row(task, BEST)


def test_a_refinement_tells_results_and_what_was_refused(server: FakeOpenAI, task: Task) -> None:
    server.script.extend(
        [
            proposals(BEST, {**GOOD, "stages": 99}, {**GOOD, "warps": "2"}, DEFAULT),
            proposals({**GOOD, "mode": "persistent"}),
        ]
    )
    trace = run(f"llm:m?rounds=2&{ALONE}", task)
    text = prompt_of(server.received[1].body)
    best_ms = task.recording.time_ms[row(task, BEST)]
    assert f"Best: {best_ms:.4g} ms" in text
    assert json.dumps(BEST) in text
    assert "- block 64 → 128: " in text
    assert "configuration 2 was refused: stages: 99 is none of [1, 2, 3]" in text
    assert 'configuration 3: warps: "2" was read as 2' in text
    assert "configuration 4 was refused: was measured already" in text
    assert trace.rows.tolist()[-1] == row(task, {**GOOD, "mode": "persistent"})


def test_failures_are_told_with_their_reason(server: FakeOpenAI, task: Task) -> None:
    recording = task.recording
    failing = int(np.flatnonzero(recording.status)[0])
    config = recording.space.value_dict(recording.space.configuration(failing))
    server.script.extend([proposals(BEST, config), proposals(GOOD)])
    trace = run(f"llm:m?rounds=2&{ALONE}", task)
    text = prompt_of(server.received[1].body)
    assert math.isinf(trace.cost_ms[-2])
    assert "1 of them failed" in text
    assert ": compile_error" in text


def test_it_ends_after_dull_rounds(server: FakeOpenAI, task: Task) -> None:
    server.script.append(proposals(BEST))
    server.default = random_answers(task)
    trace = run(f"llm:m?rounds=9&patience=2&{ALONE}", task)
    assert trace.outcome == "finished"
    assert len(server.received) == 3  # one that gained, two that did not


def test_it_ends_when_everything_is_measured(server: FakeOpenAI, task: Task) -> None:
    server.default = random_answers(task)
    trace = run("llm:m?rounds=9&initial=1000&patience=9", task)
    assert len(trace.rows) == task.recording.space.size
    assert len(server.received) == 1


def test_the_budget_ends_a_run_and_the_request_with_it(server: FakeOpenAI, task: Task) -> None:
    server.default = lambda body: Reply(fault="hang")
    trace = run("llm:m?initial=50", replace(task, budget_s=1.0))
    assert (trace.outcome, trace.error) == ("budget", None)
    assert not [t for t in threading.enumerate() if t.name == "llm-proposer"]


def test_a_tournament_asks_every_model_at_every_temperature(server: FakeOpenAI, task: Task) -> None:
    space = task.recording.space
    turn = iter(range(0, 120, 3))

    def answer(body: dict[str, Any]) -> Reply:
        rows = [next(turn) for _ in range(4)]
        return proposals(*(space.value_dict(space.configuration(row)) for row in rows))

    server.default = answer
    trace = run(f"llm:a,b?temperature=0.1,0.9&batch=8&rounds=1&{ALONE}", task)
    asked = {(each.body["model"], each.body["temperature"]) for each in server.received}
    assert asked == {(model, t) for model in ("a", "b") for t in (0.1, 0.9)}
    assert "Propose 2 different" in prompt_of(server.received[0].body)
    assert len(trace.rows) == 1 + 8  # two of each answer, the default before


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        Reply(fault="reset"),
        Reply(fault="truncate", body=b'{"choices": [{"message": {"content": "x"}}]}'),
        Reply(body=b"<html>busy</html>"),
        error(500),
        error(401, "no such key a-key-that-must-not-be-seen"),
        error(429, code="insufficient_quota"),
        json_reply({"object": "list", "data": []}),
    ],
    ids=["reset", "truncated", "html", "500", "401", "quota", "foreign"],
)
def test_a_server_in_trouble_leaves_the_search_to_the_fallback(
    server: FakeOpenAI, task: Task, reply: Reply
) -> None:
    server.default = lambda body: reply
    trace = run("llm:m?initial=4", task)
    assert trace.outcome == "finished"
    assert len(trace.rows) == task.recording.space.size
    assert trace.rows[0] == row(task, DEFAULT)
    assert trace.error is not None
    assert trace.error.startswith("llm: the models could not be reached: request small-")
    assert "a-key-that" not in trace.error
    assert len(server.received) == 1


def test_a_bench_says_that_a_searcher_went_on_without_its_model(server: FakeOpenAI) -> None:
    server.default = lambda body: error(500)
    task = Task.build(described())
    plan = make_plan([resolve("llm:m")], [task], 2, BenchSettings())
    runs = {key: run("llm:m", task, plan.seed_of(key)) for key in plan.runs()}
    cautions = analyse(plan, {task.name: task}, runs, resamples=20).cautions
    (said,) = [text for text in cautions if text.startswith("2 of 2 runs of llm:m were in trouble")]
    assert "could not be reached" in said


def test_no_server_at_all(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("LLAMEA_GPU_LLM_RETRIES", "0")
    trace = run("llm:m?initial=4&fallback=none", task)
    assert (trace.outcome, len(trace.rows)) == ("finished", 5)
    assert "could not be reached" in (trace.error or "")


def test_a_server_that_hangs(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_TIMEOUT_S", "0.2")
    server.default = lambda body: Reply(fault="hang")
    trace = run("llm:m?initial=4&fallback=none", task)
    assert "no complete answer within 0.2 s" in (trace.error or "")


@pytest.mark.parametrize(
    "reply",
    [
        completion(None, refusal="I will not"),
        completion(""),
        completion("I would try larger blocks."),
        completion("{" * 5000),
        proposals({"block": 7}),
        completion('{"configs": [{"bl', finish_reason="length"),
    ],
    ids=["refusal", "empty", "prose", "garbage", "no-value", "cut-off"],
)
def test_answers_without_use_are_asked_for_once_more_and_then_left(
    server: FakeOpenAI, task: Task, reply: Reply
) -> None:
    server.default = lambda body: reply
    trace = run("llm:m?initial=4&patience=9", task)
    assert len(server.received) == 2
    assert len(trace.rows) == task.recording.space.size
    assert "its last answers held nothing to measure" in (trace.error or "")


def test_an_empty_round_is_not_a_dull_one(server: FakeOpenAI, task: Task) -> None:
    """Otherwise one answer without use would end an impatient search, and nobody would say so."""
    server.script.extend([completion("I would try larger blocks."), proposals(BEST)])
    trace = run(f"llm:m?rounds=2&patience=1&{ALONE}", task)
    assert trace.error is None
    assert trace.rows[-1] == row(task, BEST)
    server.default = lambda body: completion("As I said.")
    gave_up = run(f"llm:m?rounds=9&patience=1&{ALONE}", task)
    assert "its last answers held nothing to measure" in (gave_up.error or "")


def test_one_of_two_models_is_enough(server: FakeOpenAI, task: Task) -> None:
    server.default = lambda body: proposals(BEST) if body["model"] == "b" else error(500)
    trace = run(f"llm:a,b?rounds=1&{ALONE}", task)
    assert trace.error is None
    assert trace.rows.tolist() == [row(task, DEFAULT), row(task, BEST)]


def test_a_cap_on_tokens_ends_the_rounds_and_not_by_a_fallback(
    server: FakeOpenAI, task: Task
) -> None:
    server.default = random_answers(task)
    trace = run("llm:m?rounds=9&patience=9&initial=0&max_tokens=100&cap_tokens=2000", task)
    assert 1 <= len(server.received) < 9
    assert len(trace.rows) < 40
    assert "the cap of 2000 tokens" in (trace.error or "")


def test_a_cap_on_dollars_needs_a_price(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.default = random_answers(task)
    spec = "llm:mine?rounds=9&patience=9&initial=0&max_tokens=1000&cap_usd=0.04"
    assert "'mine' has none" in (run(spec, task).error or "")
    table = tmp_path / "prices.toml"
    table.write_text("[models]\nmine = { input = 10, output = 20 }\n")
    monkeypatch.setenv("LLAMEA_GPU_LLM_PRICES", str(table))
    assert "the cap of 0.04 USD" in (run(spec, task).error or "")
    assert 1 <= len(server.received) < 9


# --- records and routes ------------------------------------------------------------------------


def test_a_recorded_run_is_replayed_exactly_and_strictly(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORD", str(tmp_path))
    server.default = random_answers(task)
    live = {seed: run("llm:m?rounds=3&patience=9", task, seed) for seed in (1, 2)}
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert all(len(load_recording(path)) == 3 for path in tmp_path.glob("*.jsonl"))
    monkeypatch.delenv("LLAMEA_GPU_LLM_RECORD")
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORDING", str(tmp_path))
    server.close()
    for seed, trace in live.items():
        again = run("llm:m?rounds=3&patience=9&route=replay&fallback=none", task, seed)
        assert again.rows.tolist() == trace.rows.tolist()
        assert again.elapsed_s.tolist() == trace.elapsed_s.tolist()
        assert (again.outcome, again.error) == ("finished", None)
    unseen = run("llm:m?rounds=3&patience=9&route=replay", task, 3)
    assert unseen.outcome == "error"


def test_the_rounds_are_recorded(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORD", str(tmp_path))
    server.script.extend([proposals(GOOD, {"block": 7}), proposals(BEST)])
    run(f"llm:m?rounds=2&{ALONE}", task)
    (path,) = tmp_path.glob("*.rounds.json")
    document = json.loads(path.read_text())
    assert [each["proposed"] for each in document["rounds"]] == [1, 1]
    assert [each["measured"] for each in document["rounds"]] == [2, 3]
    assert document["rounds"][1]["best_ms"] == task.recording.time_ms[row(task, BEST)]
    assert document["rounds"][1]["tokens"] == 300
    assert "block: 7 is none of" in document["rounds"][0]["notes"][0]


def test_a_folder_that_cannot_be_made_is_known_before_anything_is_asked(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORD", str(tmp_path / "file" / "folder"))
    trace = run("llm:m", task)
    assert (trace.outcome, len(trace.rows), server.received) == ("error", 0, [])
    assert "LLAMEA_GPU_LLM_RECORD must name a folder" in (trace.error or "")


def test_many_runs_share_one_exchange_folder(
    task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each waits by itself; whoever answers sees all of them at once."""
    monkeypatch.setenv("LLAMEA_GPU_LLM_FOLDER", str(tmp_path))
    monkeypatch.setenv("LLAMEA_GPU_LLM_POLL_S", "0.02")
    space, seeds = task.recording.space, range(3)
    spec = f"llm:m?rounds=2&patience=9&route=batch&{ALONE}"
    answered: dict[str, list[int]] = {}
    done = threading.Event()
    most_pending = []

    def answer_all() -> None:
        exchange = BatchExchange(tmp_path)
        rng = np.random.default_rng(3)
        while not done.wait(0.02):
            pending = exchange.pending()
            most_pending.append(len(pending))
            if answered or len(pending) == len(seeds):  # the first round of all of them
                for request_id in pending:
                    rows = rng.choice(space.size, 2, replace=False).tolist()
                    answered[request_id] = rows
                    configs = [space.value_dict(space.configuration(row)) for row in rows]
                    exchange.submit_answer(request_id, json.dumps({"configs": configs}), "hand")

    answering = threading.Thread(target=answer_all)
    answering.start()
    try:
        with Runner.open(workers=len(seeds)) as runner:
            runs = [runner.submit(resolve(spec), task, seed) for seed in seeds]
            traces = [future.result(60) for future in runs]
    finally:
        done.set()
        answering.join()
    assert max(most_pending) == len(seeds)
    assert len(answered) == 2 * len(seeds)
    measured = [sorted({row(task, DEFAULT)} | set(rows)) for rows in _by_run(answered)]
    assert sorted(sorted(trace.rows.tolist()) for trace in traces) == sorted(measured)


def _by_run(answered: dict[str, list[int]]) -> list[list[int]]:
    runs: dict[str, list[int]] = {}
    for request_id, rows in answered.items():
        runs.setdefault(request_id.rsplit("-r", 1)[0], []).extend(rows)
    return list(runs.values())


def test_latency_is_charged_only_when_asked_and_only_beyond_measuring(
    server: FakeOpenAI, task: Task
) -> None:
    server.default = lambda body: proposals(BEST)
    free, short, long = (
        run(f"llm:m?rounds=1&initial=5&fallback=none&latency_s={s}", task).elapsed_s
        for s in (0, 0.5, 1000)
    )
    assert free.tolist() == short.tolist()  # measuring took longer than the answer
    assert long[-2] == free[-2]
    assert long[-1] == pytest.approx(1000 + free[-1] - free[-2])


# --- specs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("llm:", "must name a model"),
        ("llm:m?api_key=sk-1", "must hold no key"),
        ("llm:m?rounds=0", "rounds from 1"),
        ("llm:m?rounds=x", "rounds must be of type int"),
        ("llm:m?wings=2", "no setting 'wings'"),
        ("llm:m?temperature=hot", "temperature must be a number from 0 to 2"),
        ("llm:m?temperature=0.2,3", "temperature must be a number from 0 to 2"),
        ("llm:a,?rounds=1", "must have a model"),
        ("llm:m?route=pigeon", "a route of openai, batch, replay"),
        ("llm:m?fallback=nobody", "a searcher must be a known name"),
        ("llm:m?fallback=llm:x", "must need no model"),
        ("llm:m?cap_usd=inf", "caps of at least 0"),
        ("llm:m?tag=../x", "a tag of at most 40"),
        ("hybrid:llm:m?api_key=sk-1", "must hold no key"),
        ("hybrid:llm:m?api_key=sk-1&share=7+random_search", "must hold no key"),
    ],
)
def test_a_wrong_spec_is_refused_in_words(spec: str, said: str) -> None:
    with pytest.raises(SearcherError) as caught:
        resolve(spec)
    assert said in str(caught.value)
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "spec", "said"),
    [
        ({"ROUTE": "batch"}, "llm:m", "LLAMEA_GPU_LLM_FOLDER"),
        ({}, "llm:m?route=replay", "LLAMEA_GPU_LLM_RECORDING"),
        ({"ROUTE": "pigeon"}, "llm:m", "a route must be one of openai, batch, replay"),
        ({"API": "soap"}, "llm:m", "must be chat or responses"),
        ({"TIMEOUT_S": "soon"}, "llm:m", "LLAMEA_GPU_LLM_TIMEOUT_S must be a number"),
        ({"KEY_VARIABLE": "UNSET_VARIABLE"}, "llm:m", "UNSET_VARIABLE"),
    ],
)
def test_a_route_that_cannot_be_used_is_an_error_of_the_run(
    task: Task, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], spec: str, said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"LLAMEA_GPU_LLM_{name}", value)
    trace = run(spec, task)
    assert trace.outcome == "error"
    assert said in (trace.error or "")


def test_a_model_name_may_hold_colons_and_slashes(server: FakeOpenAI, task: Task) -> None:
    server.default = lambda body: proposals(BEST)
    run(f"llm:org/qwen2.5-coder:7b?rounds=1&{ALONE}", task)
    assert server.received[0].body["model"] == "org/qwen2.5-coder:7b"
