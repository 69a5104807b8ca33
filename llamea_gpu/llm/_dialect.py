"""What one model's server turned out not to accept, and how a request does without it.

Servers that call themselves OpenAI-compatible differ in three optional fields: some reject a JSON
schema, reasoning models reject a temperature, and OpenAI's newer models want the token limit under
another name while older servers know only the old one.

Not here: required fields, and settings a server accepts but silently ignores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import openai

from llamea_gpu.llm._base import ChatRequest
from llamea_gpu.llm._completion import request_body
from llamea_gpu.llm._faults import server_message
from llamea_gpu.llm._responses import responses_body


@dataclass(slots=True)
class Dialect:
    """Starts with everything allowed and learns from rejections, once for each field."""

    responses: bool = False  # the protocol: Responses instead of chat completions
    schema: bool = True
    temperature: bool = True
    limit_field: str = "max_tokens"

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """The request's JSON body without what the server rejects."""
        if not self.schema:
            request = replace(request, response_schema=None)
        if not self.temperature:
            request = replace(request, temperature=None)
        if self.responses:
            return responses_body(request)
        return request_body(request, limit_field=self.limit_field)

    def concede(self, sent: dict[str, Any], error: openai.APIStatusError) -> str | None:
        """Give up the field of ``sent`` that ``error`` complains about.

        Returns:
            The concession in words; None when the error is about something else. The next body
            lacks the field, so that each request makes at most three concessions, whichever of
            several concurrent requests made them first.
        """
        if error.status_code not in (400, 422):
            return None
        complaint = f"{error.param} {server_message(error)}".lower()
        schema_named = any(name in complaint for name in ("response_format", "text.format"))
        if schema_named and ("response_format" in sent or "text" in sent):
            self.schema = False
            return "answers are asked for without a JSON schema"
        if "support" not in complaint:  # an accepted field with a wrong value is the user's to mend
            return None
        if "max_tokens" in sent and "max_completion_tokens" in complaint:
            self.limit_field = "max_completion_tokens"
            return "max_tokens is sent as max_completion_tokens"
        if "temperature" in sent and "temperature" in complaint:
            self.temperature = False
            return "the temperature is left to the server"
        return None
