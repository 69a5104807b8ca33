"""The batch route: a folder shared with whoever answers, at any pace and of any quality."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.chat import chat_request
from support.fake_openai import completion

from llamea_gpu.errors import LLMError, SettingsError
from llamea_gpu.llm import (
    BatchExchange,
    ChatAnswer,
    ChatRequest,
    FailedRequestError,
    RejectedAnswerError,
    Usage,
)


def output_line(custom_id: str, text: str | None = "answer", **body: Any) -> str:
    """A line as OpenAI's Batch API writes it."""
    response = {
        "status_code": 200,
        "request_id": "req_1",
        "body": {**json.loads(completion(text).body), **body},
    }
    line = {"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": None}
    return json.dumps(line) + "\n"


def failed_line(custom_id: str, status: int = 500, error: object = None) -> str:
    response = {"status_code": status, "request_id": "req_1", "body": {"error": "overloaded"}}
    return json.dumps({"custom_id": custom_id, "response": response, "error": error}) + "\n"


@pytest.fixture
def exchange(tmp_path: Path) -> BatchExchange:
    # The time limit only keeps a failing test from waiting for ever.
    return BatchExchange(tmp_path / "exchange", poll_s=0.005, timeout_s=20)


def answers(exchange: BatchExchange, name: str = "out.jsonl") -> Path:
    return exchange.folder / "answers" / name


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as handle:
        handle.write(text)


async def ask(exchange: BatchExchange, request: ChatRequest) -> asyncio.Task[ChatAnswer]:
    """Start asking, and return when the request is on disk."""
    task = asyncio.ensure_future(exchange.complete(request))
    await asyncio.sleep(0)
    return task


async def some_polls() -> None:
    await asyncio.sleep(0.03)


def request_files(exchange: BatchExchange) -> list[Path]:
    return sorted((exchange.folder / "requests").iterdir())


# --- asking ------------------------------------------------------------------------------------


async def test_a_request_is_a_line_of_the_batch_api(exchange: BatchExchange) -> None:
    schema = {"type": "object"}
    task = await ask(exchange, chat_request(max_tokens=9, temperature=1.0, response_schema=schema))
    task.cancel()
    (path,) = request_files(exchange)
    assert path.name == "r-1.jsonl"
    assert path.read_text("utf-8").endswith("}\n")
    assert json.loads(path.read_text("utf-8")) == {
        "custom_id": "r-1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "asked-model",
            "messages": [
                {"role": "system", "content": "You write optimizers."},
                {"role": "user", "content": "Write a class."},
            ],
            "temperature": 1.0,
            "max_completion_tokens": 9,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": schema},
            },
        },
    }


async def test_a_request_that_is_there_is_not_written_again(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    (path,) = request_files(exchange)
    before = path.stat()
    (await ask(BatchExchange(exchange.folder), chat_request())).cancel()
    (after,) = request_files(exchange)
    assert (after.stat().st_ino, after.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_requests_gathered_into_one_file_are_recognised(exchange: BatchExchange) -> None:
    for name in ("r-1", "r-2"):
        (await ask(exchange, chat_request(name, f"prompt of {name}"))).cancel()
    files = request_files(exchange)
    gathered = "".join(path.read_text("utf-8") for path in files)
    for path in files:
        path.unlink()
    (exchange.folder / "requests" / "batch.jsonl").write_text(gathered, "utf-8")
    (await ask(BatchExchange(exchange.folder), chat_request("r-2", "prompt of r-2"))).cancel()
    assert [path.name for path in request_files(exchange)] == ["batch.jsonl"]


async def test_another_prompt_under_the_same_id_is_refused(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    with pytest.raises(LLMError, match=r"stands with another prompt in .*r-1.jsonl, line 1"):
        await exchange.complete(chat_request(text="Something else."))


async def test_a_host_dependent_number_is_no_other_prompt(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request(text="took ≈0.21 s"))).cancel()
    task = await ask(BatchExchange(exchange.folder), chat_request(text="took ≈9.5 s"))
    assert not task.done()
    task.cancel()


async def test_ids_that_are_no_file_names_get_distinct_files(exchange: BatchExchange) -> None:
    ids = ["a/b", "a:b", "../up", ".hidden", "x" * 300, "é"]
    for request_id in ids:
        (await ask(exchange, chat_request(request_id))).cancel()
    assert len(request_files(exchange)) == len(ids)
    assert sorted(exchange.pending()) == sorted(ids)


async def test_a_kill_leaves_whole_requests_only(tmp_path: Path) -> None:
    script = f"""
import asyncio
from pathlib import Path
from support.chat import chat_request
from llamea_gpu.llm import BatchExchange
async def main():
    exchange = BatchExchange(Path({str(tmp_path)!r}), poll_s=60)
    for i in range(10_000):
        task = asyncio.ensure_future(exchange.complete(chat_request(f"r-{{i}}", "long " * 50_000)))
        await asyncio.sleep(0)
        print(i, flush=True)
asyncio.run(main())
"""
    path = os.pathsep.join(sys.path)
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    for _ in range(5):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    resumed = BatchExchange(tmp_path)
    assert resumed.warnings == ()
    assert {f"r-{i}" for i in range(5)} <= set(resumed.pending())


# --- answers -----------------------------------------------------------------------------------


async def test_an_answer_is_picked_up_when_it_appears(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request())
    await some_polls()
    assert not task.done()
    append(answers(exchange), output_line("r-1", "found"))
    answer = await task
    assert (answer.text, answer.model, answer.usage) == ("found", "served-model", Usage(100, 50))
    assert answer.created == "2023-11-14T22:13:20+00:00"


async def test_an_answer_from_before_a_crash_is_used(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    append(answers(exchange), output_line("r-1", "paid for"))
    assert (
        await BatchExchange(exchange.folder, timeout_s=20).complete(chat_request())
    ).text == "paid for"


async def test_one_file_can_answer_many_and_grow(exchange: BatchExchange) -> None:
    tasks = [await ask(exchange, chat_request(f"r-{i}")) for i in range(3)]
    for i in (2, 0, 1):
        append(answers(exchange), output_line(f"r-{i}", f"text {i}"))
        await some_polls()
    assert [(await task).text for task in tasks] == ["text 0", "text 1", "text 2"]


async def test_a_line_still_being_written_is_waited_for(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request())
    line = output_line("r-1", "whole")
    for start in range(0, len(line) - 2, 60):
        append(answers(exchange), line[start : min(start + 60, len(line) - 2)])
        await some_polls()
    assert not task.done()
    append(answers(exchange), line[-2:])
    assert (await task).text == "whole"
    assert exchange.warnings == ()


async def test_a_last_line_without_line_break_counts_when_it_is_complete(
    exchange: BatchExchange,
) -> None:
    task = await ask(exchange, chat_request())
    append(answers(exchange), output_line("r-1").rstrip("\n"))
    assert (await task).text == "answer"
    append(answers(exchange), "\n" + output_line("r-2", "next"))
    assert (await exchange.complete(chat_request("r-2"))).text == "next"
    assert exchange.warnings == ()


async def test_malformed_lines_are_reported_once_with_file_and_line(
    exchange: BatchExchange,
) -> None:
    task = await ask(exchange, chat_request())
    append(answers(exchange), '{"custom_id": \n\n[1]\n{"id": 3}\n\xff\n' + "[" * 9999 + "\n")
    await some_polls()
    append(answers(exchange), output_line("r-1"))
    await task
    path = answers(exchange)
    ignored = "; the line is ignored"
    assert exchange.warnings == (
        f"{path}, line 1: not JSON{ignored}",
        f"{path}, line 3: not an object with a custom_id{ignored}",
        f"{path}, line 4: not an object with a custom_id{ignored}",
        f"{path}, line 5: not JSON{ignored}",
        f"{path}, line 6: not JSON{ignored}",
    )


async def test_a_flood_of_bad_lines_is_summed_up(exchange: BatchExchange) -> None:
    append(answers(exchange), "junk\n" * 5000)
    exchange.pending()
    assert len(exchange.warnings) == 101
    assert exchange.warnings[-1].startswith("4900 more warnings")


async def test_bytes_that_are_no_utf8_spoil_their_line_only(exchange: BatchExchange) -> None:
    answers(exchange).write_bytes(b"\xff\xfe\x00\n" + output_line("r-1").encode())
    assert (await exchange.complete(chat_request())).text == "answer"
    assert len(exchange.warnings) == 1


async def test_the_first_of_two_answers_counts_and_the_second_is_reported(
    exchange: BatchExchange,
) -> None:
    append(answers(exchange, "a.jsonl"), output_line("r-1", "first"))
    append(answers(exchange, "b.jsonl"), output_line("r-1", "second"))
    assert (await exchange.complete(chat_request())).text == "first"
    (warning,) = exchange.warnings
    assert "b.jsonl, line 1: a second answer to 'r-1'" in warning


async def test_answers_that_nobody_asked_for_are_ignored(exchange: BatchExchange) -> None:
    append(answers(exchange), "".join(output_line(f"other-{i}") for i in range(3)))
    append(answers(exchange), output_line("r-1", "mine"))
    answer = await exchange.complete(chat_request())
    assert answer.text == "mine"
    assert exchange.warnings == ()


async def test_files_that_are_no_answers_are_left_alone(exchange: BatchExchange) -> None:
    append(answers(exchange, "notes.txt"), "junk\n")
    append(answers(exchange, ".partial.jsonl"), "junk\n")
    answers(exchange, "folder.jsonl").mkdir()
    append(answers(exchange), output_line("r-1"))
    await exchange.complete(chat_request())
    assert exchange.warnings == ()


async def test_an_unreadable_file_is_reported_and_tried_again(
    exchange: BatchExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(answers(exchange), output_line("r-1"))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # a file mode would not stop root
        patch.setattr(Path, "open", refuse)
        assert exchange.pending() == ()
    assert exchange.warnings == (f"{answers(exchange)}: cannot be read: Permission denied",)
    assert (await exchange.complete(chat_request())).text == "answer"


async def test_an_answer_without_usage_or_model_takes_them_from_the_request(
    exchange: BatchExchange,
) -> None:
    append(answers(exchange), output_line("r-1", "x" * 8, usage=None, model=None))
    answer = await exchange.complete(chat_request(text="y" * 40))
    assert answer.usage == Usage(6 + 4 + 10 + 4, 2, estimated=True)
    assert answer.model == "asked-model"


async def test_an_empty_answer_is_refused_with_its_cost(exchange: BatchExchange) -> None:
    append(answers(exchange), output_line("r-1", ""))
    with pytest.raises(RejectedAnswerError) as caught:
        await exchange.complete(chat_request())
    assert caught.value.answer.usage == Usage(100, 50)


# --- files that change -------------------------------------------------------------------------


async def test_a_file_rewritten_in_place_is_read_anew(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request("r-2"))
    answers(exchange).write_text(output_line("r-1", "short"), "utf-8")
    await some_polls()
    answers(exchange).write_text(output_line("r-2", "longer " * 99), "utf-8")
    assert (await task).text.startswith("longer")
    assert exchange.warnings == ()


async def test_a_file_replaced_by_renaming_is_read_anew(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request())
    answers(exchange).write_text(output_line("r-0"), "utf-8")
    await some_polls()
    append(answers(exchange, "new"), output_line("r-1", "replaced"))
    answers(exchange, "new").replace(answers(exchange))
    assert (await task).text == "replaced"


# --- errors in place of answers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (failed_line("r-1"), "status 500: .*overloaded"),
        (failed_line("r-1", 200, {"code": "batch_expired", "message": "late"}), "batch_expired"),
        ('{"custom_id": "r-1", "response": null, "error": {"code": "x"}}\n', "status None"),
        ('{"custom_id": "r-1"}\n', "neither a response nor an error"),
        ('{"custom_id": "r-1", "response": {"status_code": 200, "body": {}}}\n', "'choices'"),
        ('{"custom_id": "r-1", "response": {"status_code": 200, "body": []}}\n', "got list"),
    ],
)
async def test_an_error_in_place_of_an_answer_fails_the_request(
    exchange: BatchExchange, line: str, words: str
) -> None:
    append(answers(exchange), line)
    with pytest.raises(FailedRequestError, match=words) as caught:
        await exchange.complete(chat_request())
    assert "out.jsonl, line 1" in str(caught.value)
    assert exchange.pending() == ("r-1",)


@pytest.mark.parametrize("name", ["a.jsonl", "z.jsonl"])
async def test_a_good_answer_takes_precedence_over_an_error(
    exchange: BatchExchange, name: str
) -> None:
    append(answers(exchange), failed_line("r-1"))
    append(answers(exchange, name), output_line("r-1", "second try"))
    assert (await exchange.complete(chat_request())).text == "second try"
    assert exchange.pending() == ()


# --- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["answers", "requests", "."])
async def test_a_folder_that_goes_away_fails_the_request(
    exchange: BatchExchange, part: str
) -> None:
    task = await ask(exchange, chat_request())
    shutil.rmtree(exchange.folder / part)
    with pytest.raises(FailedRequestError, match=r"Remedy: make it a folder") as caught:
        await task
    assert caught.value.lost_attempts == 0


async def test_a_request_that_cannot_be_written_fails(
    exchange: BatchExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("llamea_gpu.llm.batch.write_text", full)
    with pytest.raises(FailedRequestError, match="No space left"):
        await exchange.complete(chat_request())


async def test_the_wait_can_be_limited(tmp_path: Path) -> None:
    exchange = BatchExchange(tmp_path, poll_s=0.005, timeout_s=0.02)
    with pytest.raises(FailedRequestError, match=r"no answer appeared .* not asked twice"):
        await exchange.complete(chat_request())


async def test_the_wait_can_be_cancelled_and_taken_up_again(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    append(answers(exchange), output_line("r-1"))
    assert (await exchange.complete(chat_request())).text == "answer"


async def test_polling_does_not_read_what_it_has_read(
    exchange: BatchExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(answers(exchange), output_line("other"))
    task = await ask(exchange, chat_request())
    opened: list[Path] = []
    real_open = Path.open

    def counting_open(path: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(path)
        return real_open(path, *args, **kwargs)

    await some_polls()
    monkeypatch.setattr(Path, "open", counting_open)
    await some_polls()
    assert opened == []
    task.cancel()


# --- answering by hand -------------------------------------------------------------------------


async def test_an_answer_by_hand_reaches_the_waiting_run(exchange: BatchExchange) -> None:
    task = await ask(exchange, chat_request())
    by_hand = BatchExchange(exchange.folder)
    assert by_hand.pending() == ("r-1",)
    by_hand.submit_answer("r-1", "class ByHand: ...", "a person")
    answer = await task
    assert (answer.text, answer.model) == ("class ByHand: ...", "a person")
    assert answer.usage.estimated
    assert by_hand.pending() == ()


async def test_the_prompt_is_shown_as_plain_text(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request(text="line 1\nline 2"))).cancel()
    assert BatchExchange(exchange.folder).render_text("r-1") == (
        "=== system ===\nYou write optimizers.\n\n=== user ===\nline 1\nline 2\n"
    )


async def test_a_request_is_answered_by_hand_once(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    exchange.submit_answer("r-1", "first", "a person")
    with pytest.raises(LLMError, match=r"answered once, but 'r-1' has an answer in .*line 1"):
        exchange.submit_answer("r-1", "second", "a person")


async def test_an_error_can_be_mended_by_hand(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    append(answers(exchange, "r-1.jsonl"), failed_line("r-1"))
    exchange.submit_answer("r-1", "mended", "a person")
    assert (await exchange.complete(chat_request())).text == "mended"


async def test_answering_an_unknown_request_names_close_ones(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request("run-0001"))).cancel()
    with pytest.raises(LLMError, match=r"no request 'run-001' .*did you mean run-0001"):
        exchange.submit_answer("run-001", "text", "a person")


async def test_a_blank_answer_by_hand_is_refused(exchange: BatchExchange) -> None:
    (await ask(exchange, chat_request())).cancel()
    with pytest.raises(LLMError, match="must have text"):
        exchange.submit_answer("r-1", " \n", "a person")


async def test_an_edited_request_says_what_it_lacks(exchange: BatchExchange) -> None:
    append(exchange.folder / "requests" / "x.jsonl", '{"custom_id": "r-1", "body": {}}\n')
    with pytest.raises(LLMError, match=r"x.jsonl, line 1: a request needs body.messages"):
        await exchange.complete(chat_request())


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="must be a folder to read and write"):
        BatchExchange(tmp_path / "file")


def test_the_polling_interval_is_positive(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="poll_s > 0"):
        BatchExchange(tmp_path, poll_s=0)
