"""LLM routes: one-method chat clients, and the ledger of what they cost.

``make_client`` gives the client of a route; ``llamea_gpu.llm.openai`` is imported only then,
because the SDK is slow to import. Nothing here knows what is asked or why.
"""

from llamea_gpu.llm._base import (
    ChatAnswer,
    ChatClient,
    ChatRequest,
    FailedRequestError,
    Message,
    RejectedAnswerError,
    Usage,
    estimate_tokens,
)
from llamea_gpu.llm.batch import BatchExchange
from llamea_gpu.llm.ledger import Caps, Ledger, Reservation, RunEstimate, Totals
from llamea_gpu.llm.prices import Price, find_price, load_prices, parse_price
from llamea_gpu.llm.replay import Exchange, ReplayClient, load_recording, save_recording
from llamea_gpu.llm.routes import (
    BatchOptions,
    OpenAIOptions,
    ReplayOptions,
    RouteOptions,
    make_client,
)

__all__ = [
    "BatchExchange",
    "BatchOptions",
    "Caps",
    "ChatAnswer",
    "ChatClient",
    "ChatRequest",
    "Exchange",
    "FailedRequestError",
    "Ledger",
    "Message",
    "OpenAIOptions",
    "Price",
    "RejectedAnswerError",
    "ReplayClient",
    "ReplayOptions",
    "Reservation",
    "RouteOptions",
    "RunEstimate",
    "Totals",
    "Usage",
    "estimate_tokens",
    "find_price",
    "load_prices",
    "load_recording",
    "make_client",
    "parse_price",
    "save_recording",
]
