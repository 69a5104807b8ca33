"""Specs of Helion's searches: checked without importing Helion."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.helion import names
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve


def settings(spec: str) -> dict[str, object]:
    found = resolve(spec)
    assert isinstance(found, LibrarySearcher)
    return dict(found.settings)


def test_a_spec_gives_settings_and_versions() -> None:
    found = resolve("helion:LFBOTreeSearch?effort=quick&copies=3&quantile=0.2&roles=false")
    assert isinstance(found, LibrarySearcher)
    assert found.settings == {
        "search": "LFBOTreeSearch",
        "effort": "quick",
        "start": "random",
        "initial_population_strategy": "from_random",
        "roles": False,
        "copies": 3,
        "quantile": 0.2,
    }
    assert found.versions["helion"] == importlib.metadata.version("helion")
    assert set(found.versions) == {"helion", "torch", "scikit-learn"}


@pytest.mark.parametrize("name", names())
def test_every_search_takes_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_LLM_MODEL", "m")
    key = {
        "DifferentialEvolutionSearch": "crossover_rate",
        "DESurrogateHybrid": "crossover_rate",
        "RandomSearch": "count",
        "LLMGuidedSearch": "max_rounds",
        "LLMSeededLFBOTreeSearch": "llm_max_rounds",
    }.get(name, "copies")
    assert settings(f"helion:{name}?{key}=1")[key] == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("helion:LFBOTree", "did you mean LFBOTreeSearch"),
        ("helion:", "there are LFBOTreeSearch, "),
        ("helion:LFBOTreeSearch?copis=3", r"\(effort, .*copies.*\), but got 'copis'"),
        ("helion:LFBOTreeSearch?copies=2.5", "copies must be of type int, but got '2.5'"),
        ("helion:LFBOTreeSearch?copies", "copies must be of type int, but got ''"),
        ("helion:LFBOTreeSearch?best_available_pad_random=1", "must be of type bool"),
        ("helion:LFBOTreeSearch?effort=none", "effort must be one of quick, full, but got 'none'"),
        ("helion:LFBOTreeSearch?start=best", "start must be one of random, default"),
        ("helion:PatternSearch?initial_population_strategy=x", "one of from_random, from_best"),
        ("helion:RandomSearch?kernel=x", "but got 'kernel'"),
        ("helion:RandomSearch?model=x", "but got 'model'"),
        ("helion:LLMGuidedSearch?model=x&api_base=http://x", "but got 'api_base'"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        resolve(spec)


@pytest.mark.parametrize(
    ("version", "fits"), [("1.1.9", False), ("1.2.0", True), ("1.10", True), ("1.6rc1", True)]
)
def test_old_versions_are_refused(
    version: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "helion" else known(name)
    )
    if fits:
        assert settings("helion:RandomSearch")["search"] == "RandomSearch"
    else:
        with pytest.raises(SearcherError, match=r"needs helion >= 1\.2, but 1\.1\.9 is"):
            resolve("helion:RandomSearch")


def test_checking_a_spec_imports_neither_torch_nor_helion() -> None:
    code = (
        "import sys\n"
        "from llamea_gpu.searchers.registry import resolve\n"
        "resolve('helion:LFBOTreeSearch?effort=quick&copies=3')\n"
        "print([name for name in ('torch', 'helion', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
