"""Ways of asking: what a question shows of other answers, and what it does not."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.answering import Answerer
from support.candidates import candidate
from support.command_line import COMMAND, llamea
from support.essence import essence
from support.programs import BROKEN, answer, climber_program, random_program

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.candidate import FAILED, LOST, PARTIAL, SCORED
from llamea_gpu.evolution.plan import plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import validated


def questions(client) -> dict[str, str]:
    return {
        request.request_id: request.messages[-1].content
        for request in client.asked
        if request.request_id.endswith("-0")
    }


@pytest.mark.parametrize("strategy", ["independent", "evolution"])
async def test_independent_questions_do_not_depend_on_answers(
    harness, settings, scripted, strategy: str
) -> None:
    settings = settings.model_copy(update={"strategy": strategy, "candidates": 4})
    asked = []
    for first in (climber_program(2), random_program(3), BROKEN):
        answers = {(slot, 0): answer(climber_program(slot + 4)) for slot in range(4)}
        client = scripted({**answers, (0, 0): answer(first), (0, 1): answer(random_program(5))})
        outcome, archive = await harness.run(settings, client)
        archive.close()
        asked.append(questions(client))
    same = asked[0] == asked[1] == asked[2]
    assert same == (strategy == "independent")
    if strategy == "independent":
        written = [c for c in outcome.population.candidates if c.slot >= 0]
        assert {(c.operator, c.parents) for c in written} == {("new", ())}
        assert not any("climber" in text.lower() for text in asked[0].values())


async def test_an_equal_program_is_a_sample_like_any_other(harness, settings, scripted) -> None:
    """To ask again because another answer was the same would make the two depend."""
    settings = settings.model_copy(update={"strategy": "independent"})
    client = scripted({(slot, 0): answer(climber_program(2)) for slot in range(4)})
    outcome, archive = await harness.run(settings, client)
    with closing(archive):
        written = [c for c in outcome.population.candidates if c.slot >= 0]
        assert {(c.status, c.attempts, c.p) for c in written} == {(SCORED, 1, written[0].p)}


async def test_the_answers_of_a_run_can_be_capped(harness, settings, scripted) -> None:
    settings = settings.model_copy(update={"max_answers": 3, "candidates": 6})
    answers = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(6)}
    client = scripted({**answers, (1, 0): "none", (1, 1): answer(random_program(3))})
    outcome, archive = await harness.run(settings, client)
    archive.close()
    assert "3 requests" in outcome.reason
    assert len(client.asked) == 3


SEQUENTIAL = validated({"model": "m", "further_models": ["n"], "strategy": "sequential"})


def test_a_sequential_slot_sees_everything_and_the_code_of_the_best() -> None:
    seeds = (candidate(-2, 0.9, operator="a"), candidate(-1, 0.1, operator="b"))
    first = plan_slot(0, Population(seeds), SEQUENTIAL)
    assert (first.operator, first.parents, first.model) == ("new", (), "m")
    settled = (
        *seeds,
        candidate(0, 0.5, 0.3),
        candidate(1, status=FAILED, program=None, kind="no-class"),
        candidate(2, 0.7),
        candidate(3, 0.1, status=PARTIAL),
        candidate(4, 0.8, status=FAILED),
        candidate(5, status=FAILED, kind=LOST),
    )
    plan = plan_slot(7, Population(settled), SEQUENTIAL)
    assert (plan.operator, plan.model) == ("sequential", "n")
    assert [c.slot for c in plan.parents] == [2]  # a seed program is better, but nobody's answer
    tried = Population(settled).tried()
    assert [t.identifier for t in tried] == ["a", "#2", "#0", "b", "#3", "#4", "#1"]
    assert [t.outcome for t in tried] == ["scored"] * 4 + ["stopped", "failed", "failed"]
    assert [t.kind for t in tried[-2:]] == ["error", "no-class"]
    assert (tried[2].space_p, tried[4].space_p, tried[5].space_p) == (
        {"s0": 0.5, "s1": 0.3},
        {"s0": 0.1},
        {},
    )
    assert plan == plan_slot(7, Population(settled), SEQUENTIAL)


def test_a_brought_program_opens_a_sequential_run() -> None:
    population = Population(
        (
            candidate(-1, 0.9, operator="a"),
            candidate(-2, 0.4, operator="b", inspiration=True),
            candidate(0, status=FAILED),
        )
    )
    plan = plan_slot(1, population, SEQUENTIAL)
    assert (plan.operator, [c.slot for c in plan.parents]) == ("sequential", [-2])


def listed(question: str) -> list[str]:
    """Names of the programs in the question's list."""
    if "# Tried so far" not in question:
        return []
    rows = question.split("# Tried so far\n")[1].split("\n\n")[0].split("\n")[2:]
    return sorted(row.split(" | ")[0].removeprefix("| ") for row in rows)


def delayed(scripted, seconds: dict[str, float]):
    """A route whose answers take so long, by request."""

    class Delayed(scripted):
        async def complete(self, request):
            await asyncio.sleep(seconds.get(request.request_id, 0.0))
            return await super().complete(request)

    return Delayed


SCRIPT = {
    (0, 0): answer(climber_program(2)),
    (1, 0): answer(BROKEN),
    (1, 1): "none",
    (2, 0): answer(climber_program(2)),  # as slot 0, which the list shows
    (2, 1): answer(random_program(4)),
    (3, 0): answer(climber_program(5)),
}
SEEDS = ["iterated_local_search", "random_search"]


async def test_sequential_questions_list_all_that_is_settled(harness, settings, scripted) -> None:
    settings = settings.model_copy(update={"strategy": "sequential", "offspring": 1})
    client = scripted(SCRIPT)
    outcome, archive = await harness.run(settings, client)
    with closing(archive):
        asked = questions(client)
        assert [listed(asked[f"1-{slot:04d}-0"]) for slot in range(4)] == [
            [],
            ["#0", *SEEDS],
            ["#0", "#1", *SEEDS],
            ["#0", "#1", "#2", *SEEDS],
        ]
        assert client.asked_ids() == sorted(client.asked_ids())
        assert "| #1 | failed: no-class |" in asked["1-0002-0"]
        best = outcome.population.find(0)
        assert f"| #0 | {best.p:.3f} ±" in asked["1-0001-0"]
        codes = [
            text.count("class Climber") + text.count("class Drawer") for text in asked.values()
        ]
        assert codes == [0, 1, 1, 1]  # of one program at most
        written = [c for c in outcome.population.candidates if c.slot >= 0]
        assert [c.operator for c in written] == ["new", *["sequential"] * 3]
        assert [c.attempts for c in written] == [1, 2, 2, 1]


async def test_which_answer_comes_first_decides_nothing(harness, settings, scripted) -> None:
    """With two in flight, each question lists all but what is in flight beside it."""
    settings = settings.model_copy(update={"strategy": "sequential", "offspring": 2})
    found = []
    for slow in ("1-0000-0", "1-0001-0"):
        client = delayed(scripted, {slow: 0.3})(SCRIPT)
        outcome, archive = await harness.run(settings, client)
        archive.close()
        asked = questions(client)
        lists = [listed(asked[f"1-{slot:04d}-0"]) for slot in range(4)]
        assert lists == [[], [], ["#0", *SEEDS], ["#0", "#1", *SEEDS]]
        found.append((lists, [(c.slot, c.p, c.parents) for c in outcome.population.candidates]))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def sequential_run(spaces_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of a sequential run, and beside them the run that nobody killed."""
    folder = tmp_path_factory.mktemp("sequential")
    config = folder / "run.toml"
    config.write_text(
        f"""
        route = "batch"
        model = "canned"
        strategy = "sequential"
        poll_s = 0.05
        spaces = ["small0", "small1"]
        spaces_path = ["{spaces_folder}"]
        candidates = 4
        repeats = 2
        cascade_spaces = 1
        bootstrap = 10
        max_repairs = 1
        workers = 1
        seed_programs = ["random_search"]
        """
    )
    with Answerer(folder / "run", ANSWERS):
        llamea("evolve", "-o", folder / "run", "--plain", "--config", config)
    return config


ANSWERS = {f"1-{slot:04d}-{attempt}": text for (slot, attempt), text in SCRIPT.items()}


def test_a_sequential_run_survives_a_kill(sequential_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [*COMMAND, "evolve", "-o", str(folder), "--plain", "--config", str(sequential_run)]
    with Answerer(folder, ANSWERS) as answerer:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = folder / "exchange" / "requests"
        while not (wanted.is_dir() and answerer.requests()["1-0002-0"]):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with closing(Archive.open(folder, read_only=True)) as archive:
            assert 2 <= len(archive.candidates()) < 5
        llamea("evolve", "-o", folder, "--plain", "--resume")
    assert essence(folder) == essence(sequential_run.with_name("run"))
    assert set(answerer.requests().values()) == {1}


def test_a_sequential_run_replays_strictly_and_is_compared(
    sequential_run: Path, tmp_path: Path
) -> None:
    original, answers = sequential_run.with_name("run"), tmp_path / "answers.jsonl"
    llamea("runs", "record", original, "-o", answers)
    replay = ("--route", "replay", "--replay", answers)
    for strategy in ("sequential", "independent"):
        strict = "true" if strategy == "sequential" else "false"
        llamea(
            *("evolve", "-o", tmp_path / strategy, "--plain", "--config", sequential_run, *replay),
            *("--strategy", strategy, "--set", f"replay_strict={strict}"),
        )
    assert essence(tmp_path / "sequential") == essence(original)
    for at in range(2):
        again = tmp_path / f"independent{at}"
        shutil.copytree(tmp_path / "independent", again)
    runs = (original, tmp_path / "independent0", tmp_path / "independent1")
    page = tmp_path / "compared.html"
    held_out = ("--on", "small2", "--repeats", 5, "--at", 2, "--report", page)
    found = json.loads(llamea("runs", "compare", *runs, *held_out, "--json").stdout)
    assert [cost["strategy"] for cost in found["costs"][:2]] == ["independent", "sequential"]
    assert found["costs"][1]["answers"] == 6
    assert found["costs"][1]["failed_answers"] == 3  # no class twice, and a program again
    rows = {row["strategy"]: row for row in found["again"]["strategies"]}
    assert found["again"]["spaces"] == ["small2"]
    assert found["again"]["measure"] == "P"
    assert rows["independent"]["interval"] is not None
    assert rows["sequential"]["interval"] is None  # one run says nothing about others
    assert rows["sequential"]["difference"] == pytest.approx(0.0)  # the same program, same seeds
    html = page.read_text(encoding="utf-8")
    assert "Comparison of strategies" in html
    printed = llamea("runs", "compare", *runs, *held_out).stdout
    for row in found["again"]["strategies"]:
        means = f"{row['score']:.3f}".replace("-", "−")
        if row["interval"]:
            low, high = (f"{row['interval'][end]:.3f}" for end in ("low", "high"))
            means += f" [{low}, {high}]".replace("-", "−")
        assert means in printed
        assert means in html
    text = llamea("runs", "compare", *runs).stdout
    assert "independent" in text
    assert "chosen for its luck too" in text
