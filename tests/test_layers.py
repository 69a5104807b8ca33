"""The architecture as a test: a module imports only from the layers listed before its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import llamea_gpu

PACKAGE = Path(llamea_gpu.__file__).parent
# docs/architecture.md shows the same list.
LAYERS = (
    *("errors", "resources", "files", "toml"),
    "spaces",
    "models",
    "contract",
    *("engine", "frameworks"),
    *("clocks", "curves", "baseline", "tasks", "area", "modelled", "statistics", "scoring"),
    "programs",
    *("llm", "prompting"),
    "seeding",
    *("sandbox", "searchers"),
    "runner",
    "cluster",
    "archive",
    *("evolution", "bench"),
    *("recording", "live", "export"),
    "report",
    "promotion",
    "api",
    "cli",
)
NAMED = [[name] for name in LAYERS]
# A library that only one room may know.
OWNERS = {
    "openai": {"llm"},
    "jinja2": {"prompting", "report"},
    "pyarrow": {"spaces", "bench"},
    "sqlite3": {"archive"},
    "pyseccomp": {"sandbox"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pydantic": {"models", "evolution", "bench", "recording", "live", "promotion", "cli"},
    "loky": {"runner"},
    "cloudpickle": {"live"},
    "ray": {"cluster"},
    "kernel_tuner": {"searchers", "frameworks", "recording", "live", "export"},
    "helion": {"searchers", "frameworks", "recording", "live", "export"},
    "torch": {"searchers", "frameworks", "recording", "live", "export"},
    "triton": {"frameworks", "live"},
    "optuna": {"searchers"},
    "ioh": {"bench"},
    "plotly": {"report"},
    "pandas": {"api"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            if node.module == "llamea_gpu":
                found |= {f"llamea_gpu.{alias.name}" for alias in node.names}
    return found


def test_every_module_has_a_layer() -> None:
    assert {room(path) for path in modules()} - {"__init__", "__main__"} == set(LAYERS)


def test_a_module_imports_only_from_layers_before_its_own() -> None:
    wrong = []
    for path in modules():
        here = room(path)
        for name in imports(path):
            parts = name.split(".")
            if here not in LAYERS or parts[0] != "llamea_gpu" or parts[1:2] not in NAMED:
                continue
            if LAYERS.index(parts[1]) > LAYERS.index(here):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, wrong


def test_a_library_has_one_owner() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imports(path)
        if name.split(".")[0] in OWNERS and room(path) not in OWNERS[name.split(".")[0]]
    ]
    assert not wrong, wrong


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = ["torch", "helion", "kernel_tuner", "openai", "pyarrow", "sklearn", "pandas"]
    code = (
        "import sys, llamea_gpu, llamea_gpu.llm, llamea_gpu.spaces.space, llamea_gpu.tasks\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_starts_without_torch_and_gpu_frameworks() -> None:
    heavy = ["torch", "helion", "kernel_tuner", "pandas", "plotly", "matplotlib", "ray"]
    heavy += ["jinja2", "openai", "optuna", "scipy"]  # that only some commands need, when they run
    code = (
        "import sys, llamea_gpu.cli\n"
        "for name in llamea_gpu.cli._COMMANDS: llamea_gpu.cli._load(name)\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
