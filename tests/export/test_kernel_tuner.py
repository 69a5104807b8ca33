"""The exported file: readable, standing alone, honest about its origin; and the command."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.recordings import small_recording
from support.tuning import Simulation, load_module
from typer.testing import CliRunner

import llamea_gpu
from llamea_gpu.cli import app
from llamea_gpu.errors import SearcherError
from llamea_gpu.export.kernel_tuner import export_source
from llamea_gpu.export.standalone import COPYRIGHT, packages
from llamea_gpu.programs import Provenance, read_program
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import ProgramSearcher, resolve_program

pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")

GOLDEN = Path(__file__).parent / "golden" / "genetic_algorithm.txt"
BEST = str(resource_dir("generated_optimizers") / "runs" / "h200-first" / "best.py")
SPECS = (*shipped(), BEST)
VERSION = f"llamea-gpu {llamea_gpu.__version__}"


def exported(source: str, name: str = "mine") -> str:
    return export_source(ProgramSearcher(name, read_program(source)))


MINE = "class Mine:\n    def __init__(self, size=4): ...\n    def __call__(self, e, s, r): ...\n"


def test_the_export_is_the_golden_one() -> None:
    text = export_source(resolve_program("genetic_algorithm")).replace(
        VERSION, "llamea-gpu VERSION"
    )
    if os.environ.get("LLAMEA_GPU_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: Path(spec).stem)
def test_the_optimizer_is_in_it_as_it_was_written(spec: str) -> None:
    optimizer = resolve_program(spec)
    text = export_source(optimizer)
    at = optimizer.program.source.index(f"class {optimizer.program.class_name}")
    assert optimizer.program.source[at:].strip() in text
    assert text.count(f"class {optimizer.program.class_name}") == 2  # and its strategy


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: Path(spec).stem)
def test_it_imports_the_standard_library_numpy_and_kernel_tuner(spec: str) -> None:
    text = export_source(resolve_program(spec))
    tree = ast.parse(text)
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    others = roots - sys.stdlib_module_names
    source = resolve_program(spec).program.source
    assert others == {"numpy", "kernel_tuner"} | ({"scipy"} if "scipy" in source else set())
    needs = next(line for line in text.splitlines() if line.startswith("Needs: "))
    assert ("scipy" in needs) == ("scipy" in source)


def test_linters_have_nothing_to_say(tmp_path: Path) -> None:
    for spec in SPECS:
        optimizer = resolve_program(spec)
        (tmp_path / f"{optimizer.short_name}.py").write_text(
            export_source(optimizer), encoding="utf-8"
        )
    # A lambda that has a name is a model's style, and stays.
    rules = ("--select", "E4,E7,E9,F,I", "--ignore", "E731", "--isolated", "--no-cache")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *rules, str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


STRANGER = """
import importlib, json, sys
sys.modules["llamea_gpu"] = None  # importing it raises
sys.path.insert(0, sys.argv[1])
from kernel_tuner.interface import tune_cache
for name, strategy in json.loads(sys.argv[3]):
    run = getattr(importlib.import_module(name), strategy)(seed=1)
    options = {"max_fevals": 20}
    results, env = tune_cache(sys.argv[2], strategy=run, strategy_options=options, quiet=True)
    assert len(results) == 20, name
    assert env["best_config"]["time"] == min(result["time"] for result in results)
print("done", [name for name in sys.modules if name.startswith("llamea")])
"""


def test_it_works_where_llamea_gpu_is_not_installed(tmp_path: Path) -> None:
    Simulation(small_recording(), tmp_path)
    names = []
    for spec in SPECS:
        optimizer = resolve_program(spec)
        path = tmp_path / f"{optimizer.short_name}_exported.py"
        path.write_text(export_source(optimizer), encoding="utf-8")
        names.append((path.stem, f"{optimizer.program.class_name}Strategy"))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            STRANGER,
            str(tmp_path),
            f"{tmp_path}/small.json",
            json.dumps(names),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done ['llamea_gpu']"


def test_hyperparameters_are_in_the_signature_with_the_values_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text(export_source(resolve_program("genetic_algorithm?offspring=9")))
    kind = load_module(path).GeneticAlgorithmStrategy
    assert "llamea-gpu export 'genetic_algorithm?offspring=9' --to kernel-tuner" in path.read_text()
    assert kind().hyperparameters["offspring"] == 9
    assert kind(offspring=7).hyperparameters["offspring"] == 7
    with pytest.raises(TypeError):
        kind(popsize=7)


def test_numbers_that_are_no_literals_and_a_hyperparameter_called_seed(tmp_path: Path) -> None:
    program = read_program(MINE.replace("size=4", "size=4, limit=9.0, seed=3, kind='a'"))
    optimizer = ProgramSearcher("mine", program.with_settings(limit=float("inf"), seed=8))
    path = tmp_path / "exported.py"
    path.write_text(export_source(optimizer))
    made = load_module(path).MineStrategy(seed=5)
    assert made.seed == 5
    assert made.hyperparameters == {"size": 4, "limit": float("inf"), "seed": 8, "kind": "a"}


def test_the_header_holds_idea_provenance_and_licence() -> None:
    licence = Path(__file__).parents[2].joinpath("LICENSE").read_text(encoding="utf-8")
    told = Provenance("shipped", "a-model", "a-run", ("p1", "p2"), "2026-01-02", "the command")
    loaded = resolve_program("random_search")
    text = export_source(replace(loaded, provenance=told))
    head = text[: text.index("import contextlib")]
    assert COPYRIGHT in licence
    assert head.startswith(f"# SPDX-License-Identifier: MIT\n# {COPYRIGHT}\n")
    for said in (
        loaded.program.idea,
        "Written by: a-model in the run a-run, 2026-01-02.",
        "Parents: p1, p2.",
        "Made by: the command",
        f"Exported by: {VERSION}, llamea-gpu export random_search --to kernel-tuner",
        "Needs: kernel_tuner >= 1.5, numpy.",
    ):
        assert said in head


def test_a_users_file_keeps_its_authors_licence() -> None:
    text = exported(MINE)
    assert "Optimizer: mine, a file of its user, under the licence of its author." in text
    assert text.startswith(f"# The runtime, not the optimizer: MIT License, {COPYRIGHT}\n")
    assert "SPDX" not in text


def test_the_example_imports_a_name_that_can_be_imported() -> None:
    assert "    from my_own import MineStrategy\n" in exported(MINE, name="my-own")


HOSTILE = '''he said """\nimport os\nos.abort()\n""" \\ \x1b[2J\x00 and "'''


def test_foreign_text_stays_in_the_header() -> None:
    told = Provenance("shipped", HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, HOSTILE)
    program = replace(read_program(MINE), idea=HOSTILE)
    optimizer = ProgramSearcher("mine", program, told)
    tree = ast.parse(export_source(optimizer))
    assert {type(node).__name__ for node in tree.body} == {
        *("Expr", "Import", "ImportFrom", "ClassDef", "Assign")
    }
    assert "os" not in {a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    docstring = ast.get_docstring(tree) or ""
    assert 'he said """' in docstring
    assert not set(docstring) & {"\x1b", "\x00"}


def test_docstring_imports_and_comments_of_the_source_find_their_places() -> None:
    source = (
        "# A comment first.\n"
        '"""What it is about: C:\\\\path."""\n\n'
        "from __future__ import annotations\n"
        "import numpy as np, math\n"
        "from collections import (\n    deque,\n    Counter as Tally,\n)\n"
        "import heapq; LIMIT = 3\n\n"
        f"{MINE}"
    )
    text = exported(source)
    tree = ast.parse(text)
    assert "What it is about: C:\\path." in (ast.get_docstring(tree) or "")
    assert text.index("from __future__") < text.index("import contextlib")
    assert text.count("import numpy as np\n") == text.count("import math\n") == 1
    assert "from collections import Counter as Tally, deque\n" in text
    assert "# A comment first.\n\nimport heapq; LIMIT = 3\n\nclass Mine:" in text


def test_code_beside_the_docstring_is_not_lost() -> None:
    assert '"""About."""; LIMIT = 3\n' in exported(f'"""About."""; LIMIT = 3\n{MINE}')
    future = "from __future__ import annotations"
    with pytest.raises(SearcherError, match="each on lines of its own"):
        exported(f'"""About."""; {future}\n{MINE}')


@pytest.mark.parametrize(
    "line",
    [
        "KernelTunerSpace = 3",
        "math = 3",
        "class MineStrategy: ...",
        "from random import random as python_random",
        "import numpy.linalg as np",
        "def sorted(x): return x",
        "from math import inf as traceback",
    ],
)
def test_a_name_that_both_sides_define_is_refused(line: str) -> None:
    name = load_name(line)
    with pytest.raises(SearcherError, match=f"mine defines {name}: rename it"):
        exported(f"{line}\n{MINE}")


def load_name(line: str) -> str:
    """The name that a line binds."""
    (node,) = ast.parse(line).body
    if isinstance(node, ast.Assign):
        assert isinstance(node.targets[0], ast.Name)
        return node.targets[0].id
    if isinstance(node, ast.ImportFrom | ast.Import):
        return node.names[0].asname or ""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return node.name


@pytest.mark.parametrize(
    "line", ["from random import random", "import numpy as np", "import numpy", "import math"]
)
def test_what_does_not_clash_is_let_pass(line: str, tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text(exported(f"{line}\n{MINE}"))
    load_module(path)


def test_packages_are_named_as_pip_names_them() -> None:
    source = "import math\nimport numpy as np\ndef f():\n    from sklearn.svm import SVR\n"
    assert packages(source) == ("numpy", "scikit-learn")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["export", *arguments])


def test_the_command_writes_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "ga.py"
    arguments = ("genetic_algorithm", "--to", "kernel-tuner", "-o", str(path))
    done = invoke(*arguments)
    assert done.exit_code == 0
    assert done.stdout == f"{path}: GeneticAlgorithm for kernel-tuner\n"
    assert path.read_text(encoding="utf-8") == export_source(resolve_program("genetic_algorithm"))
    path.write_text("precious")
    refused = invoke(*arguments)
    assert isinstance(refused.exception, SearcherError)
    assert "give --force" in str(refused.exception)
    assert path.read_text() == "precious"
    assert invoke(*arguments, "--force").exit_code == 0
    assert path.read_text() != "precious"


def test_the_command_prints_without_an_output() -> None:
    done = invoke("random_search", "--to", "kernel-tuner")
    assert done.exit_code == 0
    assert done.stdout == export_source(resolve_program("random_search"))


def test_nothing_is_written_when_the_optimizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.py"
    done = invoke("random_search?speed=3", "--to", "kernel-tuner", "-o", str(path))
    assert isinstance(done.exception, SearcherError)
    assert not path.exists()
