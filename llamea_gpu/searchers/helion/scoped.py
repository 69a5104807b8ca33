"""What changes in this process while a search runs, and is put back when it ends.

A worker process runs many searches one after another: none may see what the one before it set.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from llamea_gpu.errors import SearcherError


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within, no ``HELION_...`` but ``variables`` and those of the LLM route."""
    unwanted = [
        name
        for name in os.environ
        if name.startswith("HELION_") and not name.startswith("HELION_LLM_")
    ]
    before = {name: os.environ.get(name) for name in (*unwanted, *variables)}
    for name in unwanted:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Within, ``owner`` has these in place of its own.

    Raises:
        SearcherError: it has no such attribute, as in a Helion that is organised otherwise.
    """
    before = {}
    for name in attributes:
        try:
            before[name] = getattr(owner, name)
        except AttributeError:
            raise SearcherError(
                f"this Helion has no {owner.__name__}.{name}: install a version from 1.2 to 1.5"
            ) from None
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
