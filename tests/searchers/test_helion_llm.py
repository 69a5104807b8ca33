"""Helion's LLM searches on a recording: its own client against a server that speaks Responses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_openai import FakeOpenAI, Reply, error, json_reply
from support.recordings import small_recording

from llamea_gpu.errors import SearcherError
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace

KEY = "sk-a-key-that-must-not-be-seen"
GUIDED = "helion:LLMGuidedSearch?model=my-model&start=default"
SEEDED = "helion:LLMSeededLFBOTreeSearch?model=my-model&start=default"
SOURCE = "def toy(x):\n    return x + 1\n"
# The default configuration of the recording, and what the model answers: two that can be measured.
DEFAULT = {"block": 16, "warps": 1, "stages": 1, "mode": "flat"}
PROPOSED: list[object] = [{"block": 64, "warps": 2}, {"block": 128, "mode": "persistent"}]
NOT_VALID: list[object] = [
    {"warps": 64},
    {"warps": "2"},
    {"stages": 1.5},
    {"mode": None},
    {"block": {"x": 1}},
    "block",
]


def described_recording() -> Recording:
    recording = small_recording()
    info = dataclasses.replace(
        recording.info,
        device="NVIDIA H200",
        kernel_source=SOURCE,
        arguments=({"shape": [4, 32], "dtype": "torch.float16"}, {"shape": "?"}, {"dtype": "x"}),
        default_configuration=DEFAULT,
        references_ms={"default": 123.456},
        provenance={"multiprocessors": "132"},
    )
    return dataclasses.replace(recording, info=info)


@pytest.fixture(scope="module")
def task() -> Task:
    return dataclasses.replace(Task.build(described_recording()), budget_s=1e9)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as opened:
        opened.default = lambda body: proposals(PROPOSED)
        monkeypatch.setenv("HELION_LLM_PROVIDER", "openai")
        monkeypatch.setenv("HELION_LLM_API_BASE", opened.base_url)
        monkeypatch.setenv("HELION_LLM_API_KEY", KEY)
        yield opened


def proposals(configs: list[object]) -> Reply:
    text = json.dumps({"configs": configs})
    return json_reply({"output": [{"content": [{"type": "output_text", "text": text}]}]})


def run(spec: str, task: Task, seed: int = 1) -> Trace:
    return run_optimizer(resolve(spec).build, task, seed, cpu_s=None)  # type: ignore[union-attr]


def row(task: Task, **values: Any) -> int:
    space = task.recording.space
    chosen = {**DEFAULT, **values}
    pairs = zip(space.names, space.values, strict=True)
    return space.row(tuple(options.index(chosen[name]) for name, options in pairs))


@pytest.mark.parametrize("spec", [GUIDED, SEEDED])
def test_what_the_model_proposes_is_measured(server: FakeOpenAI, task: Task, spec: str) -> None:
    trace = run(spec, task)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert trace.rows[0] == row(task)
    wanted = {row(task, block=64, warps=2), row(task, block=128, mode="persistent")}
    assert wanted <= set(trace.rows.tolist())
    received = server.received[0]
    assert received.path == "/v1/responses"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.body["model"] == "my-model"
    assert {each.body["model"] for each in server.received} == {"my-model"}


def test_the_seeded_search_goes_on_where_the_model_ends(server: FakeOpenAI, task: Task) -> None:
    guided = run("helion:LLMGuidedSearch?model=my-model&start=default&max_rounds=1", task)
    seeded = run(SEEDED, task)
    assert len(server.received) == 2
    assert len(seeded.rows) > len(guided.rows)
    assert seeded.best_ms <= guided.best_ms


def test_the_prompt_describes_the_recorded_kernel(server: FakeOpenAI, task: Task) -> None:
    run(GUIDED, task)
    prompt = json.dumps(server.received[0].body)
    for said in (
        "def toy(x):",
        "shape=[4, 32], dtype=torch.float16",
        "Device: NVIDIA H200",
        "Compute units (SMs): 132",
        "block: power_of_2(min=16, max=256, default=16)",
    ):
        assert said in prompt
    assert "123.456" not in prompt
    assert KEY not in prompt


def test_proposals_that_are_not_valid_cost_nothing(server: FakeOpenAI, task: Task) -> None:
    spec = f"{GUIDED}&initial_random_configs=0&max_rounds=1"
    server.default = lambda body: proposals([*NOT_VALID, *PROPOSED])
    trace = run(spec, task)
    assert trace.outcome == "finished"
    assert len(trace.rows) == 1 + len(PROPOSED)


def test_answers_that_cannot_be_read_end_the_search(server: FakeOpenAI, task: Task) -> None:
    server.default = lambda body: json_reply({"output": [{"content": [{"type": "reasoning"}]}]})
    trace = run(GUIDED, task)
    assert trace.outcome == "error"
    assert "Helion's LLM search failed" in (trace.error or "")


def test_a_key_is_not_in_the_trace(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "a-token-of-the-gateway"
    monkeypatch.setenv("HELION_LLM_EXTRA_HEADERS", f"X-Token: {secret}")
    server.default = lambda body: error(401, f"Incorrect API key {KEY} and token {secret}")
    trace = run(GUIDED, task)
    assert trace.outcome == "error"
    assert "HTTP 401" in (trace.error or "")
    assert "Incorrect API key [secret] and token [secret]" in (trace.error or "")
    assert KEY not in (trace.error or "")


def test_a_password_in_an_address_is_not_in_the_trace(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.base_url.replace("//", "//user:password@")
    monkeypatch.setenv("HELION_LLM_API_BASE", address)
    trace = run(GUIDED, task)
    assert trace.outcome == "error"
    assert "password" not in (trace.error or "")


def test_the_budget_ends_a_search_that_waits_for_the_model(server: FakeOpenAI, task: Task) -> None:
    server.default = lambda body: Reply(fault="hang")
    trace = run(GUIDED, dataclasses.replace(task, budget_s=3.0))
    assert trace.outcome == "budget"
    assert len(trace.rows) >= 2


@pytest.mark.parametrize(
    ("model", "variables", "said"),
    [
        ("gpt-5", {}, "HELION_LLM_API_KEY"),
        ("claude-x", {}, "ANTHROPIC_API_KEY"),
        ("my-model", {"HELION_LLM_API_KEY": KEY}, "set HELION_LLM_PROVIDER"),
        ("my-model", {"HELION_LLM_PROVIDER": "none"}, "Unsupported LLM provider"),
    ],
)
def test_a_run_without_a_route_is_refused_before_it_begins(
    task: Task, monkeypatch: pytest.MonkeyPatch, model: str, variables: dict[str, str], said: str
) -> None:
    for name in ("HELION_LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HELION_LLM_PROVIDER", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SearcherError, match=f"needs an LLM route: .*{said}"):
        run(f"helion:LLMGuidedSearch?model={model}", task)


def test_the_model_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELION_LLM_MODEL", raising=False)
    with pytest.raises(SearcherError, match=r"add \?model=NAME or set HELION_LLM_MODEL"):
        resolve("helion:LLMGuidedSearch")
    monkeypatch.setenv("HELION_LLM_MODEL", "named-there")
    found = resolve("helion:LLMGuidedSearch")
    assert found.settings["model"] == "named-there"  # type: ignore[union-attr]


def test_a_spec_holds_no_key() -> None:
    with pytest.raises(SearcherError, match="HELION_LLM_API_KEY") as refused:
        resolve(f"helion:LLMSeededLFBOTreeSearch?model=m&llm_api_key={KEY}")
    assert KEY not in str(refused.value)
