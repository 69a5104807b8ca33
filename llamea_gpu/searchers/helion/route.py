"""What a Helion search runs within, and what its LLM searches need beside a space.

A worker process runs many searches one after another: what is set while one runs (`environment`,
`replaced`) is put back when it ends. LLM searches need a route, and a kernel to talk about.

Helion speaks to the model itself and reads address and key from the environment. On a live kernel
its prompt shows source, argument shapes and GPU; here it shows those of the recording, so that its
searches are not worse off than in use. It shows no reference times.

Not here: a replay of answers, prices and budgets of tokens (`llamea_gpu.llm` has them for the
project's own requests).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from helion.autotuner.llm import transport, workload

from llamea_gpu.contract import Space, facts_of
from llamea_gpu.errors import SearcherError

_KEYS = ("HELION_LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_SHORTEST_SECRET = 8


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


def check(search: str, model: str) -> None:
    """Refuse a run that could only fail at its first request.

    Raises:
        SearcherError: Helion does not know how to reach ``model``, or has no key.
    """
    try:
        provider = transport.infer_provider(model, os.environ.get("HELION_LLM_PROVIDER"))
        if provider == "unsupported":
            raise ValueError(
                f"Helion cannot tell from the name {model!r} which protocol to speak: set "
                "HELION_LLM_PROVIDER to openai (Responses API) or anthropic, and "
                "HELION_LLM_API_BASE to the server's address"
            )
        if provider in ("openai_responses", "anthropic"):
            transport._resolve_api_key(provider, None)
    except (RuntimeError, ValueError) as error:
        raise SearcherError(f"helion:{search} needs an LLM route: {error}") from None


@contextlib.contextmanager
def described(space: Space) -> Iterator[None]:
    """Within, Helion's prompts describe the recorded kernel and its GPU, and no error a key."""
    info = facts_of(space).info
    facts: dict[str, Any] = {}
    if info is not None:
        facts["get_device_name"] = lambda *_: info.device
        if info.kernel_source:
            facts["_kernel_source_text"] = lambda *_: info.kernel_source
        if (units := info.provenance.get("multiprocessors", "")).isdecimal():
            facts["num_compute_units"] = lambda: int(units)
    try:
        with replaced(workload, **facts):
            yield
    except Exception as error:
        # Its text may quote a request's address, or an answer that quotes the key.
        raise SearcherError(f"Helion's LLM search failed: {_without_secrets(str(error))}") from None


def arguments(space: Space) -> tuple[torch.Tensor, ...]:
    """The recorded kernel's tensors, without their contents."""
    info = facts_of(space).info
    described: Iterable[Mapping[str, Any]] = info.arguments if info is not None else ()
    tensors = []
    for argument in described:
        with contextlib.suppress(TypeError, ValueError, RuntimeError, AttributeError, KeyError):
            dtype = getattr(torch, str(argument["dtype"]).removeprefix("torch."))
            tensors.append(torch.empty(argument["shape"], dtype=dtype, device="meta"))
    return tuple(tensors)


def _without_secrets(text: str) -> str:
    secrets = [os.environ.get(name, "") for name in _KEYS]
    # Since 1.4; a gateway's headers may hold tokens.
    secrets += getattr(transport, "_extra_headers", dict)().values()
    for secret in filter(lambda each: len(each) >= _SHORTEST_SECRET, secrets):
        text = text.replace(secret, "[secret]")
    return re.sub(r"//[^/@\s]+@", "//[secret]@", text)
