"""What the calls of a run cost: for its report, and for the ledger of a run that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamea_gpu.archive import Call
from llamea_gpu.llm import Ledger


@dataclass(frozen=True, slots=True)
class Spending:
    """What one call cost, lost attempts included; ``usd`` is None where its model has no price."""

    slot: int
    attempt: int
    operator: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    answered: bool
    lost: int

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


def spent_on(calls: Sequence[Call], ledger: Ledger) -> list[Spending]:
    """What each call cost, counted in ``ledger``."""
    spending = []
    for call in calls:
        before = ledger.totals
        usd = ledger.release(ledger.reserve(call.request), lost_attempts=call.lost)
        if call.answer is not None:
            paid = ledger.settle(ledger.reserve(call.request), call.answer)
            usd = None if usd is None or paid is None else usd + paid
        after = ledger.totals
        spending.append(
            Spending(
                slot=call.slot,
                attempt=call.attempt,
                operator=call.operator,
                model=call.answer.model if call.answer else call.request.model,
                prompt_tokens=after.prompt_tokens - before.prompt_tokens,
                completion_tokens=after.completion_tokens - before.completion_tokens,
                usd=None if usd is None else float(usd),
                answered=call.answer is not None,
                lost=call.lost,
            )
        )
    return spending
