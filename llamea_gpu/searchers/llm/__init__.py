"""``llm:MODEL``: asks a model for configurations while tuning, refines with the results.

    llm:gpt-5-mini
    llm:qwen2.5-coder:7b?rounds=2&batch=20&temperature=0.2,1.0
    llm:MODEL-A,MODEL-B?cap_usd=0.5&fallback=none

What a spec may set is in `settings.ProposerSettings`; how models are reached is in the environment,
and never in a spec.

It only reads specs; the proposer and the SDK of a route are imported where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.hybrid import trusted
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings
from llamea_gpu.searchers.llm.settings import ProposerSettings, defaults
from llamea_gpu.searchers.spec import Spec

_NO_FALLBACK = "none"


def options(name: str) -> Mapping[str, Setting]:  # noqa: ARG001 - one for all
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return defaults()


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The searcher that ``llm:NAME?QUERY`` names.

    Raises:
        SearcherError: no model is named, or a setting is unknown or breaks a rule.
    """
    if "key" in query:
        raise SearcherError(
            f"llm:{name}: a spec is recorded, so it must hold no key (this one is not shown): "
            "name the variable that holds it in LLAMEA_GPU_LLM_KEY_VARIABLE"
        )
    known = defaults()
    chosen = parse_settings(spec, query, known)
    settings: dict[str, Setting] = {"model": name, **known, **chosen}
    if not name:
        raise SearcherError(f"{spec}: an LLM searcher must name a model: llm:MODEL")
    checked = ProposerSettings(**settings)  # type: ignore[arg-type]
    if checked.fallback != _NO_FALLBACK:
        _fallback(checked.fallback)
    return LibrarySearcher(name=spec, factory="llamea_gpu.searchers.llm:build", settings=settings)


def build(**settings: Setting) -> object:
    """The proposer with these settings."""
    from llamea_gpu.searchers.llm.proposer import LLMProposer

    checked = ProposerSettings(**settings)  # type: ignore[arg-type]
    spec = checked.fallback
    fallback = None if spec == _NO_FALLBACK else _fallback(spec).build()
    return LLMProposer(checked, fallback)


def _fallback(spec: str) -> LibrarySearcher:
    if Spec.parse(spec).scheme in ("llm", "hybrid"):
        raise SearcherError(f"a fallback must need no model, but got {spec!r}")
    return trusted(spec)
