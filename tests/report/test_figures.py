"""Figures for papers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.report_material import candidate, write_archive

from llamea_gpu.report import read_source, write_figures

RUN_FIGURES = {"progress", "gain-by-operator", "behaviour"}
BENCH_FIGURES = {"ranking", "convergence", "heat-map"} | {
    f"reached-{percent}-percent" for percent in (10, 5, 1)
}


@pytest.mark.parametrize(("kind", "names"), [("run", RUN_FIGURES), ("bench", BENCH_FIGURES)])
def test_every_figure_is_an_svg_with_text_and_a_png(kind, names, request, tmp_path) -> None:
    found = read_source(request.getfixturevalue(f"{kind}_folder"))
    files = write_figures(found, tmp_path / "figures")
    assert {path.stem for path in files} == names
    for path in files:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert data.startswith(b"\x89PNG")
        else:
            assert b"<text" in data


@pytest.mark.parametrize("kind", ["run", "bench"])
def test_the_same_folder_gives_the_same_figures(kind, request, tmp_path) -> None:
    found = read_source(request.getfixturevalue(f"{kind}_folder"))
    first, second = (write_figures(found, tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_dollar_in_a_name_begins_no_formula(tmp_path: Path) -> None:
    family = [
        candidate(0, 0.3, operator="new"),
        candidate(1, 0.4, operator="$x_{", parents=(0,)),
        candidate(2, 0.5, operator="new"),
    ]
    found = read_source(write_archive(tmp_path / "run", family))
    write_figures(found, tmp_path / "figures")
    assert "$x_{" in (tmp_path / "figures" / "gain-by-operator.svg").read_text()


def test_without_the_extra_the_error_names_it(run_folder: Path, tmp_path: Path) -> None:
    for library in ("plotly", "matplotlib"):
        code = f"import sys; sys.modules[{library!r}] = None; import llamea_gpu.cli as cli\n"
        arguments = ["llamea-gpu", "report", str(run_folder), "-o", str(tmp_path / "r.html")]
        arguments += ["--figures", str(tmp_path / "figures")]
        code += f"sys.argv = {arguments}; cli.main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "llamea-gpu[report]" in done.stderr
        assert "Traceback" not in done.stderr
