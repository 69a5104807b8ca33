"""The exported file: it stands alone, registers itself, and searches exactly as ours does."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion.autotuner
import pytest
from support.helion_live import bound_kernel, run_search
from typer.testing import CliRunner

from llamea_gpu.cli import app
from llamea_gpu.errors import SearcherError
from llamea_gpu.export.helion import export_source
from llamea_gpu.frameworks.helion import space
from llamea_gpu.live.helion.registration import search_class
from llamea_gpu.programs import read_program
from llamea_gpu.programs.shipped import generated
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import ProgramSearcher, resolve_program

BEST = str(resource_dir("generated_optimizers") / "runs" / "h200-first" / "best.py")
# Not random_search: its class has the name of a search of Helion's.
SPECS = (
    *("iterated_local_search", "simulated_annealing", "genetic_algorithm"),
    *("differential_evolution", BEST),
)

# The promoted ones, and of the classical ones what moves by neighbours and what submits.
VISITING = [
    *generated(),
    *("iterated_local_search", "steady_state_genetic_algorithm", BEST),
]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Helion's registry, put back after the test."""
    known = dict(helion.autotuner.search_algorithms)
    monkeypatch.setattr(helion.autotuner, "search_algorithms", known)
    return known


@pytest.fixture(scope="module")
def softmax() -> Iterator[tuple[Any, Any]]:
    with bound_kernel("softmax", "B200") as given:
        yield given


def imported(text: str, folder: Path) -> Any:
    """The module of an exported file."""
    path = folder / "exported.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("spec", VISITING, ids=lambda spec: Path(spec).stem)
def test_registered_and_exported_visit_the_same(
    spec: str, softmax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = resolve_program(spec)
    module = imported(export_source(optimizer), tmp_path)
    for each in (module, space):  # drawing a thousand takes most of such a short run
        monkeypatch.setattr(each, "HELION_MOST_POOLED", 200)
        monkeypatch.setattr(each, "HELION_MOST_SAMPLED", 200)
    exported = helion.autotuner.search_algorithms[optimizer.program.class_name]
    assert exported.__module__ == "exported"
    seen, best = [], []
    for cls in (search_class(optimizer), exported):
        search = cls(*softmax, evaluations=24)
        best.append(run_search(search))
        seen.append(search.benchmark_provider.batches)
    assert seen[0] == seen[1]
    assert best[0] == best[1]
    assert sum(map(len, seen[0])) == 24


def test_it_takes_hyperparameters_and_a_budget(softmax: Any, tmp_path: Path) -> None:
    optimizer = resolve_program("iterated_local_search", {"kick_size": 4})
    module = imported(export_source(optimizer), tmp_path)
    search = module.autotuner(evaluations=9, max_kicks=7)(*softmax).autotuner
    assert search.evaluations == 9
    assert search.hyperparameters == {"start_samples": 16, "kick_size": 4, "max_kicks": 7}
    assert search.optimizer.kick_size == 4
    with pytest.raises(ValueError, match="but got speed"):
        module.autotuner(speed=1)
    with pytest.raises(ValueError, match="evaluations must be positive"):
        module.autotuner(evaluations=0)


STRANGER = """
import gc, importlib, json, math, sys
gc.disable()  # a third of importing Helion is to look for garbage
sys.modules["llamea_gpu"] = None  # importing it raises
sys.path.insert(0, sys.argv[1])
import torch
from helion.autotuner import (
    BooleanFragment, EnumFragment, IntegerFragment, PowerOfTwoFragment, search_algorithms,
)
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec

class Formula(BenchmarkProvider):
    mutated_arg_indices = ()
    seen = 0
    def __init__(self, **given): pass
    def setup(self): pass
    def cleanup(self): pass
    def benchmark(self, configs, **options):
        self.seen += len(configs)
        return [BenchmarkResult(c, lambda *_, t=time_ms(c): t, time_ms(c), "ok", 0.1)
                for c in configs]

def time_ms(config):
    return 1 + abs(math.log2(config["block"]) - 6) + abs(config["stages"] - 3) + config["flag"]

spec = create_user_config_spec({
    "block": PowerOfTwoFragment(1, 1024, 32), "stages": IntegerFragment(1, 8, 1),
    "kind": EnumFragment(tuple("abcdef")), "flag": BooleanFragment(),
})
again = lambda fns, **_: [fn() for fn in fns]
for module, name in json.loads(sys.argv[2]):
    importlib.import_module(module)
    kernel = _ExternalKernelAdapter(
        spec, None, (), device=torch.device("cpu"), autotune_effort="quick",
        autotune_random_seed=1, autotune_benchmark_fn=again,
    )
    search = search_algorithms[name](kernel, (), evaluations=40)
    search._benchmark_provider_cls = Formula
    best = search.autotune(skip_cache=True)
    assert search.benchmark_provider.seen == 40, (name, search.benchmark_provider.seen)
    assert time_ms(best) < 3, (name, best)
print("done", [name for name in sys.modules if name.startswith("llamea")])
"""


def test_it_works_where_llamea_gpu_is_not_installed(tmp_path: Path) -> None:
    names = []
    for spec in (SPECS[0], BEST):
        optimizer = resolve_program(spec)
        path = tmp_path / f"{optimizer.short_name}_exported.py"
        path.write_text(export_source(optimizer), encoding="utf-8")
        names.append((path.stem, optimizer.program.class_name))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", STRANGER, str(tmp_path), json.dumps(names)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("done ['llamea_gpu']")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: Path(spec).stem)
def test_it_imports_the_standard_library_and_what_helion_brings(spec: str) -> None:
    optimizer = resolve_program(spec)
    text = export_source(optimizer)
    nodes = list(ast.walk(ast.parse(text)))
    named = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    named |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {name.split(".")[0] for name in named} - sys.stdlib_module_names
    assert others == {"numpy", "helion", "threadpoolctl"} | ({"scipy"} if spec == BEST else set())
    at = optimizer.program.source.index(f"class {optimizer.program.class_name}")
    assert optimizer.program.source[at:].strip() in text  # as it was written


def test_its_head_says_how_to_use_it_and_its_tail_joins_it() -> None:
    text = export_source(resolve_program("iterated_local_search"))
    head, tail = text.split('"""')[1], text[text.index("\nSEARCH = ") :]
    assert head.startswith("IteratedLocalSearch: a search for Helion.\n\nDescend to a local")
    assert "HELION_AUTOTUNER=IteratedLocalSearch" in head
    assert "iterated_local_search.autotuner(evaluations=200)" in head
    assert "llamea-gpu export iterated_local_search --to helion" in head
    assert tail == JOINT


JOINT = '''
SEARCH = helion_search(
    "IteratedLocalSearch",
    IteratedLocalSearch,
    {
        "start_samples": 16,
        "kick_size": 2,
        "max_kicks": 3,
    },
    fingerprint="34a56631fc553a70",
)
helion_register(SEARCH)


def autotuner(**options):
    """For ``@helion.kernel(autotuner_fn=...)``: evaluations, seconds, hyperparameters."""
    return helion_autotuner(SEARCH, **options)
'''


def test_linters_have_nothing_to_say(tmp_path: Path) -> None:
    for spec in SPECS[:-1]:  # the last is exported as its model wrote it
        text = export_source(resolve_program(spec))
        (tmp_path / f"{resolve_program(spec).short_name}.py").write_text(text, encoding="utf-8")
    ruff = (sys.executable, "-m", "ruff")
    for command in (("check", "--select", "E,F,I,W"), ("format", "--check")):
        done = subprocess.run(
            [*ruff, *command, "--isolated", "--no-cache", "--line-length=100", str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["autotuner", "SEARCH", "HelionSpace", "random"])
def test_a_name_of_the_files_own_is_refused(name: str) -> None:
    source = f"{name} = 3\n\n\nclass Mine:\n    def __call__(self, e, s, r): ...\n"
    mine = ProgramSearcher("mine", read_program(source))
    with pytest.raises(SearcherError, match=name):
        export_source(mine)


def test_the_command_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    command = ["export", "genetic_algorithm?population_size=12", "--to", "helion", "-o", str(path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert '"population_size": 12,' in path.read_text(encoding="utf-8")
