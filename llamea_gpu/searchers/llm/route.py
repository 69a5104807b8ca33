"""How a proposer reaches its models: from the environment, because specs and folders are recorded.

LLAMEA_GPU_LLM_ROUTE        openai (default), batch or replay; ?route= in a spec goes before it
LLAMEA_GPU_LLM_BASE_URL     openai: the server's address; OpenAI's own without it
LLAMEA_GPU_LLM_API          openai: chat (default) or responses
LLAMEA_GPU_LLM_KEY_VARIABLE openai: the variable that holds the key (default OPENAI_API_KEY)
LLAMEA_GPU_LLM_TIMEOUT_S    openai: seconds an attempt may take (default 120);
                            batch: seconds to wait for an answer (default: as long as it takes)
LLAMEA_GPU_LLM_RETRIES      openai: attempts after the first (default 2)
LLAMEA_GPU_LLM_FOLDER       batch: the exchange folder
LLAMEA_GPU_LLM_POLL_S       batch: seconds between looks at it (default 2)
LLAMEA_GPU_LLM_RECORDING    replay: a recording, or a folder of them, one a run
LLAMEA_GPU_LLM_RECORD       any route: a folder to write each run's conversation and rounds to
LLAMEA_GPU_LLM_PRICES       a price table to add to the shipped one
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from llamea_gpu.errors import SearcherError
from llamea_gpu.llm import (
    BatchOptions,
    OpenAIOptions,
    Price,
    ReplayOptions,
    RouteOptions,
    load_prices,
)

ROUTES = ("openai", "batch", "replay")
_PREFIX = "LLAMEA_GPU_LLM_"
_Number = TypeVar("_Number", int, float)


def route_options(route: str, run_id: str) -> RouteOptions:
    """The options of ``route`` ("" for the environment's) for the run of that id.

    Raises:
        SearcherError: a variable is missing, or holds what it must not.
    """
    route = route or _variable("ROUTE") or "openai"
    if route == "openai":
        api = _variable("API") or "chat"
        if api not in ("chat", "responses"):
            raise SearcherError(f"{_PREFIX}API must be chat or responses, but is {api!r}")
        return OpenAIOptions(
            base_url=_variable("BASE_URL") or None,
            api_key_env=_variable("KEY_VARIABLE") or "OPENAI_API_KEY",
            timeout_s=_number("TIMEOUT_S", float, 120.0),
            max_retries=_number("RETRIES", int, 2),
            api="responses" if api == "responses" else "chat",
        )
    if route == "batch":
        limit_s = _number("TIMEOUT_S", float, 0.0)
        folder = _needed("FOLDER", route)
        return BatchOptions(Path(folder), _number("POLL_S", float, 2.0), limit_s or None)
    if route == "replay":
        path = Path(_needed("RECORDING", route))
        return ReplayOptions(path / f"{run_id}.jsonl" if path.is_dir() else path)
    raise SearcherError(f"a route must be one of {', '.join(ROUTES)}, but got {route!r}")


def require_route(route: str) -> None:
    """Fail once and now, not in each run.

    Raises:
        SearcherError: as for `route_options`.
        SettingsError: OpenAI's own server is meant, and there is no key.
    """
    options = route_options(route, "")
    if isinstance(options, OpenAIOptions):
        options.require_key()


def record_folder() -> Path | None:
    """Where conversations are kept, made if need be; None: nowhere.

    Raises:
        SearcherError: it cannot be made.
    """
    named = _variable("RECORD")
    if not named:
        return None
    folder = Path(named)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SearcherError(
            f"{_PREFIX}RECORD must name a folder, but {named!r}: {error}"
        ) from error
    return folder


def prices() -> Mapping[str, Price]:
    """The shipped table, and the user's."""
    own = _variable("PRICES")
    return {**load_prices(), **(load_prices(Path(own)) if own else {})}


def _variable(name: str) -> str:
    return os.environ.get(f"{_PREFIX}{name}", "").strip()


def _needed(name: str, route: str) -> str:
    value = _variable(name)
    if not value:
        raise SearcherError(f"the route {route} needs the environment variable {_PREFIX}{name}")
    return value


def _number(name: str, kind: Callable[[str], _Number], default: _Number) -> _Number:
    text = _variable(name)
    try:
        value = kind(text) if text else default
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise SearcherError(f"{_PREFIX}{name} must be a number of at least 0, but is {text!r}")
    return value
