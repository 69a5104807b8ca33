"""A local HTTP server that speaks OpenAI's chat completions, and misbehaves on demand.

Replies are scripted: each request takes the next one, and ``default`` answers when the script is
used up. Everything received is kept in ``received``.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fault = Literal["", "reset", "truncate", "hang", "drip", "chunked-truncate"]


@dataclass(frozen=True)
class Reply:
    """One HTTP response, or one way of not giving it."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    fault: Fault = ""


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def completion(
    text: str | None = "answer",
    *,
    prompt_tokens: int = 100,
    completion_tokens: int = 50,
    finish_reason: str | None = "stop",
    refusal: str | None = None,
    usage: bool = True,
    model: str = "served-model",
) -> Reply:
    """A well-formed chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if refusal is not None:
        message["refusal"] = refusal
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if usage:
        body["usage"] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    return json_reply(body)


def error(
    status: int,
    message: str = "scripted failure",
    *,
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """An error in OpenAI's format."""
    payload = {"error": {"message": message, "type": "scripted", "code": code, "param": param}}
    return json_reply(payload, status, headers)


def json_reply(payload: object, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """Any JSON."""
    return Reply(json.dumps(payload).encode(), status, headers or {})


class FakeOpenAI:
    """Start with ``with FakeOpenAI() as server``; ``server.base_url`` is what a client needs."""

    def __init__(self) -> None:
        self.script: deque[Reply] = deque()
        self.default: Callable[[dict[str, Any]], Reply] = lambda body: completion()
        self.received: list[Received] = []
        self.most_concurrent = 0
        self.models = json_reply({"object": "list", "data": []})
        self._concurrent = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> FakeOpenAI:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and let go of requests that hang; may be called again."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()

    def next_reply(self, received: Received) -> Reply:
        with self._lock:
            self.received.append(received)
            self._concurrent += 1
            self.most_concurrent = max(self.most_concurrent, self._concurrent)
            if self.script:
                return self.script.popleft()
        return self.default(received.body)

    def finished(self) -> None:
        with self._lock:
            self._concurrent -= 1

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than the server lives; True when it is over."""
        return self._stopped.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the tests."""


def _handler_of(server: FakeOpenAI) -> type[BaseHTTPRequestHandler]:  # noqa: C901
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(server.models)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length))
            reply = server.next_reply(Received(self.path, dict(self.headers), body))
            try:
                self._send(reply)
            finally:
                server.finished()

        def _send(self, reply: Reply) -> None:
            if reply.fault == "hang":
                server.wait(60)
                self.close_connection = True
                return
            if reply.fault == "reset":
                # Linger 0 makes close() send RST instead of FIN.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.shutdown(socket.SHUT_RD)
                self.connection.close()
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.fault == "chunked-truncate":
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                half = reply.body[: len(reply.body) // 2]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
                self.close_connection = True
                return
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if reply.fault == "truncate":
                self.wfile.write(reply.body[: len(reply.body) // 2])
                self.close_connection = True
                return
            if reply.fault == "drip":
                for byte in reply.body:
                    self.wfile.write(bytes([byte]))
                    if server.wait(0.05):
                        return
                return
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Keep the test output clean."""

    return Handler
