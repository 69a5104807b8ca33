"""The notebook of the documentation runs, shows what it holds, and says nothing of a machine."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_its_cells_run_and_give_what_is_kept(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        exec(compile(tree, str(path), "exec"), names)
        value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
        (output,) = cell["outputs"]
        kept = output["data"]
        if "text/html" in kept:  # a table: its columns
            assert all(column in "".join(kept["text/html"]) for column in value.columns)
        elif "text/plain" in kept:
            assert _words(repr(value)) == _words("".join(kept["text/plain"]))
        else:
            drawn = kept["application/vnd.plotly.v1+json"]["data"]
            assert [trace.name for trace in value.data] == [t.get("name") for t in drawn]


def _words(text: str) -> str:
    """Without spacing and numbers: another machine may add in another order."""
    return re.sub(r"[\d.]+|\s+", "", text)


def test_the_script_leaves_no_trace_of_a_machine() -> None:
    for path in FOLDER.glob("*.ipynb"):
        text = path.read_text()
        assert not re.search(r"/(home|root|tmp|work|usr|Users)/", text)
        assert "execution" not in json.loads(text)["metadata"]
