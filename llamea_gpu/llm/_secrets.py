"""Reads a key from the environment and keeps it out of every text.

A key is known by the name of its environment variable alone; settings, archives and errors hold
the name. ``Redactor`` removes the value from texts that a server or library made.

Not here: encodings of the key (base64, percent): a server that wants to leak a key it was given
can always do so.
"""

from __future__ import annotations

import os
import re

from llamea_gpu.errors import SettingsError

# Local servers take any key, and people pass "none", "EMPTY" or "ollama". Redacting such words
# would damage answers and protect nothing.
_SHORTEST_SECRET = 8
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Redactor:
    """Replaces one secret in texts. Its repr does not show the secret."""

    __slots__ = ("_label", "_secret")

    def __init__(self, secret: str, label: str) -> None:
        self._secret = secret if len(secret) >= _SHORTEST_SECRET else ""
        self._label = label

    def __call__(self, text: str) -> str:
        """``text`` without the secret."""
        return text.replace(self._secret, f"[{self._label}]") if self._secret else text

    def __repr__(self) -> str:
        return f"Redactor({self._label!r})"


def require_key(variable: str, base_url: str | None) -> str | None:
    """The key in ``variable`` for the server at ``base_url``, where None is OpenAI's own.

    Raises:
        SettingsError: as for `read_key`, or OpenAI's own server without a key.
    """
    key = read_key(variable)
    if key is None and base_url is None:
        raise SettingsError(
            f"OpenAI needs a key, but the environment variable {variable} is not set: set it, or "
            f"OPENAI_BASE_URL to the address of a server that needs none"
        )
    return key


def read_key(variable: str) -> str | None:
    """The key in the environment variable ``variable``; None when unset or blank.

    Raises:
        SettingsError: ``variable`` is no name of a variable (a key, most likely), or the value
            cannot travel in an HTTP header. The message shows neither.
    """
    if not _VARIABLE.fullmatch(variable):
        raise SettingsError(
            "api_key_env must be the name of an environment variable (letters, digits and _), but "
            "is something else, which is not shown because it may be a key: put the key in a "
            "variable such as OPENAI_API_KEY, and give that name"
        )
    key = os.environ.get(variable, "").strip()
    if not key:
        return None
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SettingsError(
            f"the environment variable {variable} must hold a key of printable ASCII characters "
            f"without spaces, but it holds others: copy the key again"
        )
    return key
