"""The replay route: what was recorded, nothing else, and a helpful refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.chat import chat_answer, chat_request

from llamea_gpu.errors import LLMError, UnseenPromptError
from llamea_gpu.llm import (
    Exchange,
    RejectedAnswerError,
    ReplayClient,
    Usage,
    load_recording,
    save_recording,
)

BODY = "\n".join(f"Line {i} of a prompt that all requests of a run share." for i in range(60))


def recorded(tmp_path: Path, *exchanges: Exchange) -> Path:
    path = tmp_path / "recording.jsonl"
    save_recording(path, exchanges)
    return path


def exchange(request_id: str, prompt: str, answer: str) -> Exchange:
    return Exchange(chat_request(request_id, prompt), chat_answer(answer))


async def test_a_recorded_prompt_gets_its_answer_unchanged(tmp_path: Path) -> None:
    answer = chat_answer(
        "class Ω: …\n",
        usage=Usage(7, 9, True),
        finish_reason="length",
        elapsed_s=1.5,
        lost_attempts=2,
    )
    path = recorded(tmp_path, Exchange(chat_request(), answer))
    assert await ReplayClient(path).complete(chat_request()) == answer


async def test_host_dependent_numbers_do_not_matter(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "used ≈0.21 s, ≈1.5e-3 s and ≈12,345 kB.", "yes"))
    slower = chat_request("r-1", "used ≈ 3 s, ≈4.25 s and ≈7 kB.")
    assert (await ReplayClient(path).complete(slower)).text == "yes"


async def test_other_numbers_do_matter(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "P = 0.21", "yes"))
    with pytest.raises(UnseenPromptError):
        await ReplayClient(path).complete(chat_request("r-1", "P = 0.22"))


async def test_roles_are_part_of_the_prompt() -> None:
    one, two = chat_request().messages
    assert chat_request().key != type(chat_request())("r", "m", (two, one)).key


async def test_a_prompt_recorded_twice_is_answered_under_its_own_id(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "same", "one"), exchange("r-2", "same", "two"))
    client = ReplayClient(path)
    assert (await client.complete(chat_request("r-2", "same"))).text == "two"
    assert (await client.complete(chat_request("r-1", "same"))).text == "one"


async def test_under_new_ids_the_recorded_order_is_kept(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "same", "one"), exchange("r-2", "same", "two"))
    client = ReplayClient(path)
    texts = [(await client.complete(chat_request(i, "same"))).text for i in ("x-1", "x-2")]
    assert texts == ["one", "two"]


async def test_an_answer_taken_under_its_own_id_is_not_given_to_another(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "same", "one"), exchange("r-2", "same", "two"))
    client = ReplayClient(path)
    await client.complete(chat_request("r-1", "same"))
    assert (await client.complete(chat_request("x-1", "same"))).text == "two"


async def test_the_same_request_may_ask_again(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("r-1", "same", "one")))
    for _ in range(2):
        assert (await client.complete(chat_request("r-1", "same"))).text == "one"


async def test_answers_that_are_used_up_are_not_handed_out_again(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("r-1", "same", "one")))
    await client.complete(chat_request("x-1", "same"))
    with pytest.raises(UnseenPromptError, match=r"recorded 1 times .* used up"):
        await client.complete(chat_request("x-2", "same"))


async def test_an_unseen_prompt_is_shown_beside_the_nearest(tmp_path: Path) -> None:
    path = recorded(
        tmp_path,
        exchange("r-1", "Something quite different.", "one"),
        exchange("r-2", f"{BODY}\nBudget: 100\nend", "two"),
    )
    with pytest.raises(UnseenPromptError) as caught:
        await ReplayClient(path).complete(chat_request("r-9", f"{BODY}\nBudget: 200\nend"))
    message = str(caught.value)
    assert "request r-9: its prompt is not in" in message
    assert "The nearest is that of r-2, 99." in message
    assert "\n-Budget: 100\n+Budget: 200\n" in message
    assert "Remedy: " in message


async def test_among_equals_the_same_id_is_the_nearest(tmp_path: Path) -> None:
    path = recorded(
        tmp_path, *(exchange(f"r-{i}", f"{BODY}\nvariant {i}", "text") for i in range(9))
    )
    with pytest.raises(UnseenPromptError, match="nearest is that of r-7,"):
        await ReplayClient(path).complete(chat_request("r-7", f"{BODY}\nvariant other"))


async def test_the_difference_stays_short(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "\n".join("abcdefgh" * 50), "one"))
    with pytest.raises(UnseenPromptError) as caught:
        await ReplayClient(path).complete(chat_request("r-1", "x" * 9000 + "\nno\n" * 500))
    assert len(str(caught.value)) < 5000
    assert "\n…\n" in str(caught.value)


async def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnseenPromptError, match="is empty"):
        await ReplayClient(recorded(tmp_path)).complete(chat_request())


async def test_a_recorded_refusal_is_refused_again_with_its_cost(tmp_path: Path) -> None:
    refusal = chat_answer("no", finish_reason="refusal")
    client = ReplayClient(recorded(tmp_path, Exchange(chat_request(), refusal)))
    with pytest.raises(RejectedAnswerError) as caught:
        await client.complete(chat_request())
    assert caught.value.answer == refusal


async def test_a_lenient_replay_answers_by_id_and_notes_the_deviation(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("r-1", "old", "one")), strict=False)
    assert (await client.complete(chat_request("r-1", "new"))).text == "one"
    (deviation,) = client.warnings
    assert "-old" in deviation
    assert "+new" in deviation


async def test_a_lenient_replay_is_silent_about_what_matches(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("r-1", "old", "one")), strict=False)
    await client.complete(chat_request("r-1", "old"))
    assert client.warnings == ()


async def test_a_lenient_replay_repeats_itself_when_it_is_asked_once_more(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("1-0005-0", "old", "one")), strict=False)
    assert (await client.complete(chat_request("1-0005-2", "repair"))).text == "one"
    assert len(client.warnings) == 1


async def test_a_lenient_replay_does_not_invent_answers(tmp_path: Path) -> None:
    client = ReplayClient(recorded(tmp_path, exchange("r-1", "old", "one")), strict=False)
    with pytest.raises(UnseenPromptError):
        await client.complete(chat_request("r-2", "new"))


def test_equal_exchanges_give_equal_bytes(tmp_path: Path) -> None:
    exchanges = [exchange(f"r-{i}", f"prompt {i}", f"text {i}") for i in range(3)]
    for name in ("a", "b"):
        save_recording(tmp_path / name, exchanges)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [e.answer.text for e in load_recording(tmp_path / "a")] == ["text 0", "text 1", "text 2"]


def test_a_failed_save_leaves_the_old_recording(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "prompt", "kept"))

    def broken() -> object:
        yield exchange("r-2", "prompt", "new")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        save_recording(path, broken())  # type: ignore[arg-type]
    assert [e.answer.text for e in load_recording(path)] == ["kept"]
    assert [p.name for p in tmp_path.iterdir()] == ["recording.jsonl"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("answer"), "'answer' is missing"),
        (lambda d: d.update(messages=[{"role": "tool", "content": ""}]), "role must be"),
        (lambda d: d["messages"][0].update(content="edited"), "was edited"),
        (lambda d: d["answer"].update(text=None), "text must be text"),
        (lambda d: d["answer"]["usage"].update(prompt_tokens=-1), "prompt_tokens must be"),
        (lambda d: d["answer"]["usage"].update(prompt_tokens=10**30), "from 0 to 9007199254740992"),
        (lambda d: d["answer"].update(lost_attempts=10**9), "lost_attempts must be"),
        (lambda d: d["answer"].update(usage=[]), "usage must be an object"),
        (lambda d: d["answer"].update(elapsed_s=10**400), "too large"),
        (lambda d: d["answer"].update(elapsed_s=float("nan")), "elapsed_s must be a finite"),
        (lambda d: d.update(request_id=1), "request_id must be text"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, change: object, words: str) -> None:
    path = recorded(tmp_path, exchange("r-1", "one", "1"), exchange("r-2", "two", "2"))
    first, second = path.read_text("utf-8").splitlines()
    data = json.loads(second)
    change(data)  # type: ignore[operator]
    path.write_text(f"{first}\n{json.dumps(data)}\n", "utf-8")
    with pytest.raises(LLMError, match=f"line 2: not a recorded exchange: .*{words}"):
        ReplayClient(path)


async def test_a_recorded_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "one", "TEXT"))
    text = path.read_text("utf-8").replace("TEXT", "a\\ud800b")
    path.write_text(text.replace("served-model", "m\\udfff"), "utf-8")
    answer = await ReplayClient(path).complete(chat_request("r-1", "one"))
    assert (answer.text, answer.model) == ("a?b", "m?")


@pytest.mark.parametrize("line", ["{", "[]", "null", "[" * 9999, '"text"'])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(line + "\n", "utf-8")
    with pytest.raises(LLMError, match=r"broken.jsonl, line 1: not a recorded exchange"):
        ReplayClient(path)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(LLMError, match=r"none.jsonl cannot be read"):
        ReplayClient(tmp_path / "none.jsonl")


def test_line_separators_inside_a_text_do_not_split_it(tmp_path: Path) -> None:
    path = recorded(tmp_path, exchange("r-1", "prompt", "a\u2028b\x85c\x0cd\r\ne"))
    assert load_recording(path)[0].answer.text == "a\u2028b\x85c\x0cd\r\ne"
