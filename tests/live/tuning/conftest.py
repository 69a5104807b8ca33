"""A model's server that the environment names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fake_openai import FakeOpenAI

SECRET = "a-key-that-must-not-be-seen"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as opened:
        monkeypatch.setenv("LLAMEA_GPU_LLM_BASE_URL", opened.base_url)
        monkeypatch.setenv("LLAMEA_GPU_LLM_RETRIES", "0")
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        yield opened
