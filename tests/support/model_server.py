"""What a scripted model answers to a proposer's prompt."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from support.fake_openai import Reply, completion


def prompt_of(body: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in body["messages"])


def example_in(body: dict[str, Any]) -> dict[str, Any]:
    """The valid configuration that every prompt shows."""
    found = re.search(r"^A valid configuration: (.*)$", prompt_of(body), re.MULTILINE)
    assert found is not None
    example: dict[str, Any] = json.loads(found[1])
    return example


def answer(*configs: dict[str, Any]) -> Reply:
    return completion(json.dumps({"analysis": "so", "configs": configs}))


class Held:
    """An answer that waits until something else has happened; ``in_time`` says whether it did."""

    def __init__(self, reply: Callable[[dict[str, Any]], Reply]) -> None:
        self.happened = threading.Event()
        self.in_time: list[bool] = []
        self._reply = reply

    def __call__(self, body: dict[str, Any]) -> Reply:
        self.in_time.append(self.happened.wait(30))
        return self._reply(body)


class Interrupted:
    """A progress callback in which somebody presses Ctrl-C, once so many are measured."""

    def __init__(self, at: int) -> None:
        self._at = at

    def __call__(self, told: Any) -> None:
        if told.measured >= self._at:
            raise KeyboardInterrupt
