"""The ledger: exact sums, hard caps that count what is in flight, and no cost forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.chat import chat_answer, chat_request
from support.fake_openai import FakeOpenAI, Reply, completion, error, json_reply

from llamea_gpu.errors import BudgetExceededError, LLMError, SettingsError
from llamea_gpu.llm import (
    Caps,
    FailedRequestError,
    Ledger,
    Price,
    RejectedAnswerError,
    Totals,
    Usage,
    load_prices,
)
from llamea_gpu.llm.openai import OpenAIClient
from llamea_gpu.llm.prices import find_price

MakeClient = Callable[..., OpenAIClient]

# A prompt token costs 1 and a completion token 10 millionths of a dollar.
PRICES = {"asked-model": Price(Decimal(1), Decimal(10))}
MICRO = Decimal("0.000001")
# chat_request(): ceil(21 / 4) + 4 and ceil(14 / 4) + 4 tokens.
PROMPT_TOKENS = 18


def request(request_id: str = "r-1", **fields: Any) -> Any:
    return chat_request(request_id, **{"max_tokens": 100, **fields})


def dollars(micro: int) -> Decimal:
    return micro * MICRO


# --- sums --------------------------------------------------------------------------------------


def test_an_answer_costs_what_its_usage_says() -> None:
    ledger = Ledger(PRICES)
    cost = ledger.settle(ledger.reserve(request()), chat_answer(usage=Usage(30, 7)))
    assert cost == dollars(30 + 70)
    assert ledger.totals == Totals(
        requests=1, prompt_tokens=30, completion_tokens=7, usd=dollars(100)
    )
    assert ledger.totals.tokens == 37


def test_sums_are_exact() -> None:
    ledger = Ledger({"asked-model": Price(Decimal("0.1"), Decimal("0.3"))})
    for i in range(1000):
        ledger.settle(ledger.reserve(request(f"r-{i}")), chat_answer(usage=Usage(1, 1)))
    assert ledger.totals.usd == Decimal("0.0004")


def test_estimated_usage_is_counted_and_told_apart() -> None:
    ledger = Ledger(PRICES)
    ledger.settle(ledger.reserve(request()), chat_answer(usage=Usage(5, 5, estimated=True)))
    assert (ledger.totals.estimated_requests, ledger.totals.tokens) == (1, 10)


def test_without_a_price_tokens_are_counted_and_dollars_are_unknown() -> None:
    ledger = Ledger({})
    assert ledger.settle(ledger.reserve(request()), chat_answer()) is None
    assert (ledger.totals.tokens, ledger.totals.usd) == (150, 0)
    assert ledger.totals.unpriced_requests == 1


def test_a_price_of_zero_is_a_price() -> None:
    ledger = Ledger({"asked-model": Price(Decimal(0), Decimal(0))}, Caps(usd=Decimal(0)))
    assert ledger.settle(ledger.reserve(request()), chat_answer()) == 0
    assert ledger.totals.unpriced_requests == 0


def test_a_released_reservation_leaves_no_trace() -> None:
    ledger = Ledger(PRICES, Caps(requests=1))
    ledger.release(ledger.reserve(request()))
    assert (ledger.totals, ledger.in_flight) == (Totals(), 0)
    ledger.reserve(request("r-2"))


def test_lost_attempts_are_charged_at_the_whole_reservation() -> None:
    ledger = Ledger(PRICES)
    cost = ledger.settle(ledger.reserve(request()), chat_answer(lost_attempts=2))
    assert cost == dollars(2 * (PROMPT_TOKENS + 1000) + 100 + 500)
    assert (ledger.totals.requests, ledger.totals.lost_attempts) == (1, 2)


@pytest.mark.parametrize("close", ["settle", "release"])
def test_a_reservation_is_closed_once(close: str) -> None:
    ledger = Ledger(PRICES)
    reservation = ledger.reserve(request())
    ledger.settle(reservation, chat_answer())
    with pytest.raises(ValueError, match="r-1 is not in flight"):
        ledger.settle(reservation, chat_answer()) if close == "settle" else ledger.release(
            reservation
        )
    assert ledger.totals.requests == 1


def test_two_requests_of_one_id_are_two_reservations() -> None:
    ledger = Ledger(PRICES)
    first, second = ledger.reserve(request()), ledger.reserve(request())
    ledger.release(first)
    assert ledger.in_flight == 1
    ledger.settle(second, chat_answer())


# --- caps --------------------------------------------------------------------------------------

ONE_USD = dollars(PROMPT_TOKENS + 1000)
ONE_TOKENS = PROMPT_TOKENS + 100


@pytest.mark.parametrize(
    "caps",
    [
        Caps(usd=3 * ONE_USD),
        Caps(usd=4 * ONE_USD - MICRO),
        Caps(tokens=3 * ONE_TOKENS),
        Caps(tokens=4 * ONE_TOKENS - 1),
        Caps(requests=3),
    ],
)
def test_requests_in_flight_count_towards_a_cap(caps: Caps) -> None:
    ledger = Ledger(PRICES, caps)
    for i in range(3):
        ledger.reserve(request(f"r-{i}"))
    with pytest.raises(BudgetExceededError, match="request r-3 may take"):
        ledger.reserve(request("r-3"))
    assert ledger.in_flight == 3


def test_settling_below_the_reservation_makes_room() -> None:
    ledger = Ledger(PRICES, Caps(tokens=ONE_TOKENS + 20))
    ledger.settle(ledger.reserve(request("r-1")), chat_answer(usage=Usage(15, 5)))
    ledger.reserve(request("r-2"))


def test_a_server_that_bills_more_than_reserved_ends_the_run() -> None:
    ledger = Ledger(PRICES, Caps(usd=2 * ONE_USD))
    ledger.settle(ledger.reserve(request()), chat_answer(usage=Usage(10_000, 10_000)))
    with pytest.raises(BudgetExceededError, match=r"0\.11 are spent"):
        ledger.reserve(request("r-2"))


def test_spent_tokens_of_an_earlier_session_count() -> None:
    ledger = Ledger(PRICES, Caps(requests=5))
    ledger.restore(Totals(requests=5))
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request())


def test_totals_are_restored_before_anything_is_counted() -> None:
    ledger = Ledger(PRICES)
    ledger.reserve(request())
    with pytest.raises(ValueError, match="before the first reservation"):
        ledger.restore(Totals(requests=5))


def test_restoring_continues_the_sum() -> None:
    whole, first, second = Ledger(PRICES), Ledger(PRICES), Ledger(PRICES)
    for ledger in (whole, first):
        ledger.settle(ledger.reserve(request("r-1")), chat_answer(lost_attempts=1))
    second.restore(first.totals)
    for ledger in (whole, second):
        ledger.settle(ledger.reserve(request("r-2")), chat_answer())
    assert second.totals == whole.totals


def test_a_dollar_cap_needs_a_price_and_says_how_to_give_one() -> None:
    ledger = Ledger({}, Caps(usd=Decimal(1)))
    with pytest.raises(SettingsError, match=r'--free .* add "asked-model" = \{ input'):
        ledger.reserve(request())


@pytest.mark.parametrize("caps", [Caps(usd=Decimal(1)), Caps(tokens=1000)])
def test_a_cap_needs_a_bound_on_the_answer(caps: Caps) -> None:
    with pytest.raises(SettingsError, match="needs max_tokens"):
        Ledger(PRICES, caps).reserve(request(max_tokens=None))


def test_a_cap_on_requests_needs_neither() -> None:
    Ledger({}, Caps(requests=1)).reserve(request(max_tokens=None))


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"at least 0 .* but tokens is -1"):
        Caps(tokens=-1)


@pytest.mark.parametrize("value", ["nan", "snan", "inf"])
def test_a_cap_that_is_no_finite_number_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="finite"):
        Caps(usd=Decimal(value))


# --- estimate ----------------------------------------------------------------------------------


def test_an_estimate_is_the_most_that_a_run_can_cost() -> None:
    estimate = Ledger(PRICES).estimate(10, prompt_chars=4000, max_tokens=500, model="asked-model")
    assert (estimate.prompt_tokens, estimate.completion_tokens) == (10_000, 5000)
    assert estimate.usd == dollars(10 * (1000 + 5000))
    assert estimate.affordable_requests is None


def test_an_estimate_says_how_many_requests_the_caps_allow() -> None:
    ledger = Ledger(PRICES, Caps(usd=dollars(6000 * 7 + 5999), tokens=1500 * 9, requests=20))
    assert ledger.estimate(50, 4000, 500, "asked-model").affordable_requests == 7


def test_as_many_requests_as_affordable_can_be_reserved() -> None:
    ledger = Ledger(PRICES, Caps(usd=5 * ONE_USD))
    n = ledger.estimate(99, 4 * PROMPT_TOKENS, 100, "asked-model").affordable_requests
    assert n == 5
    for i in range(n):
        ledger.reserve(request(f"r-{i}"))
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request("more"))


def test_an_estimate_without_a_price_has_no_dollars() -> None:
    assert Ledger({}).estimate(10, 4000, 500, "local").usd is None


# --- the ledger and a real server --------------------------------------------------------------

OK = completion().body
RESERVED = Usage(PROMPT_TOKENS, 100)
FAULTS: dict[str, tuple[list[Reply], int, int]] = {
    # replies, answers that count, lost attempts
    "an answer": ([completion()], 1, 0),
    "429, then an answer": ([error(429), completion()], 1, 0),
    "500 for ever": ([error(500)] * 3, 0, 0),
    "401": ([error(401)], 0, 0),
    "reset, then an answer": ([Reply(fault="reset"), completion()], 1, 1),
    "truncated for ever": ([Reply(OK, fault="truncate")] * 3, 0, 3),
    "timeout, then an answer": ([Reply(fault="hang"), completion()], 1, 1),
    "an empty answer": ([completion("")], 1, 0),
    "a refusal": ([completion(None, refusal="no")], 1, 0),
    "prose": ([completion("I think …")], 1, 0),
    "a megabyte": ([completion("z" * 1_000_000)], 1, 0),
    "wrong JSON": ([json_reply({"text": "hi"})], 0, 1),
    "truncated, then a refusal": (
        [Reply(OK, fault="truncate"), completion(None, refusal="no")],
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_the_ledger_is_right_after_every_fault(
    server: FakeOpenAI, make_openai: MakeClient, name: str
) -> None:
    replies, answers, lost = FAULTS[name]
    server.script.extend(replies)
    hangs = any(reply.fault == "hang" for reply in replies)
    timeout_s = 1.0 if hangs else 30.0  # on a busy machine an answer takes its time
    client = make_openai(timeout_s=timeout_s, max_retries=2)
    ledger = Ledger(PRICES, Caps(usd=Decimal(1)))
    reservation = ledger.reserve(request())
    try:
        ledger.settle(reservation, await client.complete(request()))
    except LLMError as failure:
        ledger.settle_error(reservation, failure)
    assert ledger.in_flight == 0
    assert ledger.totals == Totals(
        requests=answers,
        prompt_tokens=answers * 100 + lost * RESERVED.prompt_tokens,
        completion_tokens=answers * 50 + lost * RESERVED.completion_tokens,
        usd=answers * dollars(600) + lost * ONE_USD,
        lost_attempts=lost,
    )


async def test_concurrent_requests_together_stay_below_the_cap(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.default = lambda body: completion(prompt_tokens=PROMPT_TOKENS, completion_tokens=100)
    client = make_openai(max_concurrency=10)
    ledger = Ledger(PRICES, Caps(usd=4 * ONE_USD))

    async def one(i: int) -> bool:
        try:
            reservation = ledger.reserve(request(f"r-{i}"))
        except BudgetExceededError:
            return False
        ledger.settle(reservation, await client.complete(request(f"r-{i}")))
        return True

    assert sum(await asyncio.gather(*map(one, range(10)))) == 4
    assert ledger.totals.usd == 4 * ONE_USD
    assert len(server.received) == 4


def test_an_error_that_cost_nothing_releases() -> None:
    ledger = Ledger(PRICES)
    ledger.settle_error(ledger.reserve(request()), KeyboardInterrupt())
    assert (ledger.totals, ledger.in_flight) == (Totals(), 0)


def test_errors_carry_what_they_cost() -> None:
    ledger = Ledger(PRICES)
    rejected = RejectedAnswerError("no", chat_answer(usage=Usage(1, 2)))
    failed = FailedRequestError("gone", lost_attempts=1)
    assert ledger.settle_error(ledger.reserve(request()), rejected) == dollars(21)
    assert ledger.settle_error(ledger.reserve(request()), failed) == ONE_USD


# --- prices ------------------------------------------------------------------------------------


def test_the_shipped_prices_load_and_are_exact() -> None:
    prices = load_prices()
    assert len(prices) >= 12
    assert prices["gpt-4o-mini"] == Price(Decimal("0.15"), Decimal("0.60"))


@pytest.mark.parametrize("name", ["gpt-4o-mini-2024-07-18", "claude-haiku-4-5-20251001"])
def test_a_dated_snapshot_has_the_price_of_its_model(name: str) -> None:
    assert find_price(load_prices(), name) is not None


@pytest.mark.parametrize("name", ["gpt-4o-mini-audio", "gpt", "", "gpt-4o-mini-2024"])
def test_other_names_have_no_price(name: str) -> None:
    assert find_price(load_prices(), name) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 3", r"must have a table \[models\]"),
        ("[models]\na = 3", "must be { input"),
        ("[models]\na = { input = 1 }", "must be { input"),
        ('[models]\na = { input = "1", output = 2 }', "must be numbers"),
        ("[models]\na = { input = true, output = 2 }", "must be numbers"),
        ("[models]\na = { input = -1, output = 2 }", "at least 0, but input"),
        ("[models]\na = { input = inf, output = 2 }", "at least 0, but input"),
        ("[models", "cannot be read"),
    ],
)
def test_a_broken_price_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SettingsError, match=words):
        load_prices(path)


def test_a_missing_price_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read"):
        load_prices(tmp_path / "none.toml")
