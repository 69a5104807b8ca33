"""The ledger: what a run's LLM calls have cost, and the caps that they must not pass.

Before a request is sent it is reserved at the most it can cost; reservations in flight count
towards the caps, so that a hundred concurrent requests cannot pass a cap which each of them alone
respects. When the answer is there, the reservation is settled at the tokens the server reports.

Two estimates remain. The tokens of a prompt are known only afterwards (``estimate_tokens``), so a
cap can be passed by the error of that estimate on the last requests. And an attempt that broke off
may have been billed without a word: it is charged at its whole reservation, once it is known.

Dollars are ``Decimal`` and exact. One event loop (or one thread) owns a ledger.
Not here: sending, and storing the totals; ``restore`` takes them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from llamea_gpu.errors import BudgetExceededError, SettingsError
from llamea_gpu.llm._base import (
    ChatAnswer,
    ChatRequest,
    FailedRequestError,
    RejectedAnswerError,
    Usage,
)
from llamea_gpu.llm.prices import Price, find_price, unknown_price_message


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds on a run; None: unbounded."""

    usd: Decimal | None = None
    tokens: int | None = None
    requests: int | None = None

    def __post_init__(self) -> None:
        for name in ("usd", "tokens", "requests"):
            value = getattr(self, name)
            if value is not None and not (Decimal(value).is_finite() and value >= 0):
                raise SettingsError(
                    f"a cap must be a finite number of at least 0 (or None: no cap), but {name} is "
                    f"{value}"
                )


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been spent.

    Attributes:
        requests: answers received, unusable ones included.
        prompt_tokens: sum over answers and lost attempts.
        completion_tokens: likewise.
        usd: dollars of everything that has a price.
        unpriced_requests: answers of models without a price; ``usd`` lacks them.
        estimated_requests: answers whose server reported no usage.
        lost_attempts: attempts charged at their reservation, because they broke off.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: Decimal = Decimal(0)
    unpriced_requests: int = 0
    estimated_requests: int = 0
    lost_attempts: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The most that one request can cost; ``usd`` is None without a price."""

    request_id: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: Decimal | None

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """What a run costs at most, attempts that break off left aside.

    Attributes:
        requests: how many were asked about.
        prompt_tokens: of all of them together.
        completion_tokens: likewise, every answer as long as allowed.
        usd: dollars; None without a price.
        affordable_requests: how many of them the caps allow for certain; None without caps.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd: Decimal | None
    affordable_requests: int | None


class Ledger:
    """Counts requests, tokens and dollars against hard caps.

    Args:
        prices: by model name; see ``prices.load_prices``.
        caps: the bounds. A dollar cap needs a price for every model that is asked, and dollar and
            token caps need ``max_tokens`` in every request: nothing else bounds an answer.
    """

    def __init__(self, prices: Mapping[str, Price], caps: Caps | None = None) -> None:
        self._prices = prices
        self._caps = caps or Caps()
        self._totals = Totals()
        self._in_flight: set[Reservation] = set()

    @property
    def totals(self) -> Totals:
        """What has been spent; reservations in flight are not part of it."""
        return self._totals

    @property
    def in_flight(self) -> int:
        """Reservations neither settled nor released."""
        return len(self._in_flight)

    def restore(self, totals: Totals) -> None:
        """Continue from the totals of an interrupted run.

        Raises:
            ValueError: something has been counted already.
        """
        if self._in_flight or self._totals != Totals():
            raise ValueError("totals must be restored before the first reservation")
        self._totals = totals

    def reserve(self, request: ChatRequest) -> Reservation:
        """Set aside the most that ``request`` can cost.

        Raises:
            BudgetExceededError: with everything spent and in flight, it could pass a cap.
            SettingsError: a cap is set that this request cannot be checked against.
        """
        reservation = self._reservation(
            request.request_id, request.model, request.estimated_prompt_tokens(), request.max_tokens
        )
        for name, spent, in_flight, demand, cap in self._accounts(reservation):
            if cap is not None and spent + in_flight + demand > cap:
                raise BudgetExceededError(
                    f"the cap of {cap} {name} must hold, but {spent} are spent, {in_flight} are in "
                    f"flight and request {request.request_id} may take {demand}: raise the cap, or "
                    f"lower max_tokens"
                )
        self._in_flight.add(reservation)
        return reservation

    def usd(self, model: str, usage: Usage) -> Decimal | None:
        """Dollars for one answer of ``model``, counted nowhere; None without a price."""
        price = find_price(self._prices, model)
        if price is None:
            return None
        return price.cost_usd(usage.prompt_tokens, usage.completion_tokens)

    def settle(self, reservation: Reservation, answer: ChatAnswer) -> Decimal | None:
        """Replace the reservation by what the answer cost.

        Returns:
            Dollars, the answer's lost attempts included; None without a price.
        """
        self._close(reservation)
        before_usd = self._totals.usd
        self._charge_lost(reservation, answer.lost_attempts)
        self._charge(reservation.model, answer.usage)
        priced = reservation.usd is not None
        totals = self._totals
        self._totals = replace(
            totals,
            requests=totals.requests + 1,
            unpriced_requests=totals.unpriced_requests + (not priced),
            estimated_requests=totals.estimated_requests + answer.usage.estimated,
        )
        return self._totals.usd - before_usd if priced else None

    def settle_error(self, reservation: Reservation, error: BaseException) -> Decimal | None:
        """Settle a request that ended in ``error``, by what the error says it cost."""
        if isinstance(error, RejectedAnswerError):
            return self.settle(reservation, error.answer)
        lost = error.lost_attempts if isinstance(error, FailedRequestError) else 0
        return self.release(reservation, lost_attempts=lost)

    def release(self, reservation: Reservation, lost_attempts: int = 0) -> Decimal | None:
        """Give the reservation back; attempts that may have been billed are charged whole.

        A request cancelled while the ``openai`` route had it is such an attempt.
        """
        self._close(reservation)
        before_usd = self._totals.usd
        self._charge_lost(reservation, lost_attempts)
        return None if reservation.usd is None else self._totals.usd - before_usd

    def estimate(
        self, n_requests: int, prompt_chars: int, max_tokens: int, model: str
    ) -> RunEstimate:
        """What ``n_requests`` prompts of ``prompt_chars`` characters cost at most.

        Raises:
            SettingsError: a dollar cap is set and ``model`` has no price.
        """
        request = self._reservation("estimate", model, -(-prompt_chars // 4), max_tokens)
        affordable = [
            int((cap - spent - in_flight) // demand)
            for _, spent, in_flight, demand, cap in self._accounts(request)
            if cap is not None and demand > 0
        ]
        return RunEstimate(
            requests=n_requests,
            prompt_tokens=n_requests * request.prompt_tokens,
            completion_tokens=n_requests * request.completion_tokens,
            usd=None if request.usd is None else n_requests * request.usd,
            affordable_requests=max(0, min(affordable)) if affordable else None,
        )

    def _reservation(
        self, request_id: str, model: str, prompt_tokens: int, max_tokens: int | None
    ) -> Reservation:
        usd = self.usd(model, Usage(prompt_tokens, max_tokens or 0))
        if self._caps.usd is not None and usd is None:
            raise SettingsError(f"cap_usd is set: {unknown_price_message(model)}")
        if max_tokens is None and not (self._caps.usd is None and self._caps.tokens is None):
            raise SettingsError(
                f"a cap on dollars or tokens needs max_tokens, but request {request_id} has none: "
                f"set max_tokens, or remove the cap"
            )
        return Reservation(request_id, model, prompt_tokens, max_tokens or 0, usd)

    def _accounts(
        self, reservation: Reservation
    ) -> list[tuple[str, Decimal | int, Decimal | int, Decimal | int, Decimal | int | None]]:
        """(name, spent, in flight, demand, cap) of everything that can be capped."""
        flying = self._in_flight
        usd = sum((r.usd for r in flying if r.usd is not None), Decimal(0))
        tokens = sum(r.tokens for r in flying)
        total, caps = self._totals, self._caps
        return [
            ("USD", total.usd, usd, reservation.usd or Decimal(0), caps.usd),
            ("tokens", total.tokens, tokens, reservation.tokens, caps.tokens),
            ("requests", total.requests, len(flying), 1, caps.requests),
        ]

    def _close(self, reservation: Reservation) -> None:
        if reservation not in self._in_flight:
            raise ValueError(
                f"a reservation is settled or released once, but that of request "
                f"{reservation.request_id} is not in flight"
            )
        self._in_flight.remove(reservation)

    def _charge_lost(self, reservation: Reservation, attempts: int) -> None:
        usage = Usage(reservation.prompt_tokens, reservation.completion_tokens, estimated=True)
        for _ in range(attempts):
            self._charge(reservation.model, usage)
        self._totals = replace(self._totals, lost_attempts=self._totals.lost_attempts + attempts)

    def _charge(self, model: str, usage: Usage) -> None:
        totals = self._totals
        self._totals = replace(
            totals,
            prompt_tokens=totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=totals.completion_tokens + usage.completion_tokens,
            usd=totals.usd + (self.usd(model, usage) or 0),
        )
