"""The three routes to a model, as settings, and the client that each setting stands for.

Not here: reading settings from a file. No options hold a key, only the name of its variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from llamea_gpu.llm._base import ChatClient
from llamea_gpu.llm._secrets import require_key
from llamea_gpu.llm.batch import BatchExchange
from llamea_gpu.llm.replay import ReplayClient

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """The ``openai`` route; see :class:`llamea_gpu.llm.openai.OpenAIClient`.

    Attributes:
        base_url: e.g. "http://127.0.0.1:8000/v1"; None: OpenAI, or what OPENAI_BASE_URL says.
        api_key_env: the environment variable that holds the key. Servers given by ``base_url``
            may do without.
        timeout_s: the longest one attempt may take, from connecting to the answer's last byte.
        max_retries: how often to try again.
        max_concurrency: requests under way at once. A request keeps its place while it waits for
            a retry: a server in trouble is not offered more.
        api: "chat" for chat completions, which every server speaks; "responses".
    """

    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 300.0
    max_retries: int = 4
    max_concurrency: int = 8
    api: Literal["chat", "responses"] = "chat"

    @property
    def server(self) -> str | None:
        """The server's address; None for OpenAI's own."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or None

    def require_key(self) -> str | None:
        """The key, where one is set; known without the SDK.

        Raises:
            SettingsError: see :func:`llamea_gpu.llm._secrets.require_key`.
        """
        return require_key(self.api_key_env, self.server)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The ``batch`` route; see :class:`llamea_gpu.llm.batch.BatchExchange`."""

    folder: Path
    poll_s: float = 2.0
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The ``replay`` route; see :class:`llamea_gpu.llm.replay.ReplayClient`."""

    path: Path
    strict: bool = True


RouteOptions = OpenAIOptions | BatchOptions | ReplayOptions


def make_client(options: RouteOptions, rng: np.random.Generator | None = None) -> ChatClient:
    """The client that ``options`` describe; ``rng`` varies the delays between retries.

    Raises:
        SettingsError: options that contradict a rule, or a key that is missing.
        LLMError: a recording that cannot be read.
    """
    if isinstance(options, BatchOptions):
        return BatchExchange(options.folder, options.poll_s, options.timeout_s)
    if isinstance(options, ReplayOptions):
        return ReplayClient(options.path, options.strict)
    from llamea_gpu.llm.openai import OpenAIClient  # the SDK takes a second to import

    return OpenAIClient(options, rng)
