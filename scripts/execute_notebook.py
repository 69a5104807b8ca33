"""Execute the notebook of docs/notebooks, cell by cell, and keep its outputs.

    python scripts/execute_notebook.py docs/notebooks/first_steps.ipynb

Needs the extra ``notebook``. Figures are kept as data, which Jupyter and VS Code draw.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat


def main(path: Path) -> None:
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            # What a terminal would show beside the result: nothing of it belongs to the notebook.
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
