"""The script for a GPU machine, without one: what it runs, continues with and sums up."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llamea_gpu.frameworks.helion.kernel_script import find_script, shapes_of
from llamea_gpu.frameworks.helion.static import pretend_gpu

pytest.importorskip("helion")
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "h200_helion.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("h200_helion", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "COMPARED", (("rope", "medium"), ("matmul", "medium")))
    return module


def options(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["h200_helion.py", *words])
    return script._options()


def test_searches_that_were_made_are_not_made_again(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[str, str]] = []

    def run(command: list[str], _limit_s: float, environment: dict[str, str]) -> tuple[bool, str]:
        given = options(script, monkeypatch, *command[2:])
        ran.append((given.kernel, given.searcher))
        assert set(environment) == {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"}
        place = script.SEARCHERS.index(given.searcher) if given.searcher != "final" else 0
        if place == 2 and given.kernel == "rope":
            return False, "exit status 1"
        names = [name for name in script.SEARCHERS if (given.kernel, name) in ran]
        times = {name: 2.0**i for i, name in enumerate(names)}
        if given.searcher == "final":
            times |= {"default": 9.0, "reference": 7.0}
            if given.kernel == "rope":
                del times[script.SEARCHERS[2]]
            line = {"kernel": given.kernel, "shape": given.shape, "time_ms": times}
            script._append(given.out / "final.jsonl", line)
        else:
            line = {"kernel": given.kernel, "searcher": given.searcher, "config": {}}
            line |= {"seconds": 10.0 * (1 + place), "capped": False, "configurations": 100}
            script._append(given.out / "searches.jsonl", line)
        return True, ""

    monkeypatch.setattr(script, "_run", run)
    given = options(script, monkeypatch, str(tmp_path))
    script.compare_all(given, time.monotonic() + 20)  # too late to begin one
    assert not ran
    script.compare_all(given, time.monotonic() + 10_000)
    rounds = [(kernel, name) for kernel, _ in script.COMPARED for name in given.searchers]
    assert [entry for entry in ran if entry[1] != "final"] == rounds
    assert [entry[0] for entry in ran if entry[1] == "final"] == ["rope", "matmul"]
    ran.clear()
    script.compare_all(given, time.monotonic() + 10_000)
    assert not ran
    rows = script.summary(tmp_path).splitlines()
    assert any(row.startswith("| helion:LFBOTreeSearch@quick | 2 | 2.0000 | 2.000") for row in rows)
    assert any(row.startswith("| helion:PatternSearch@quick | 1 | 4.0000 |") for row in rows)


def test_a_program_is_ended_with_what_it_started(script: ModuleType, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    child = f"import time; time.sleep(4); open({str(marker)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])"
    assert script._run([sys.executable, "-c", code + "; print('words')"], 60) == (True, "words")
    well, said = script._run([sys.executable, "-c", code + "; time.sleep(60)"], 1)
    assert (well, said) == (False, "over 1 s")
    well, said = script._run([sys.executable, "-c", "raise SystemExit('no')"], 60)
    assert (well, said.split()) == (False, ["exit", "status", "1", "no"])
    time.sleep(4)
    assert not marker.exists()


def test_every_searcher_and_kernel_named_is_there(script: ModuleType) -> None:
    for kernel, shape in (*script.RECORDED, *script.COMPARED):
        assert shape in shapes_of(find_script(kernel))
    with pretend_gpu("H200") as pretended:
        case = pretended.load_case(find_script("rope"))
        bound = pretended.bind(case.kernel, case.arguments)
        found = [script.make_search(name, bound, case) for name in script.SEARCHERS]
        full, quick = (vars(search)["initial_population"] for search in found[:2])
        assert full > quick
        assert [getattr(search, "evaluations", None) for search in found[3:]] == [100, 100]
        json.dumps(dict(bound.config_spec.default_config().config))  # what searches.jsonl holds
