"""Kernel scripts: what they may say, and what is said to their authors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.kernel_tuner.kernel_script import load_kernel_script, parse_sizes

BODY = """
import numpy as np
{before}
def tune_kernel_arguments():
    return dict(kernel_name="k", kernel_source={source}, problem_size=64,
                arguments=[np.zeros((4, 8), np.float16), np.int32(3)],
                tune_params={{"block_size_x": [32, 64]}}{more})
"""


def write(folder: Path, source: str = "'void k() {}'", more: str = "", before: str = "") -> Path:
    path = folder / "some_kernel.py"
    path.write_text(BODY.format(source=source, more=more, before=before))
    return path


def test_what_it_says_is_what_is_loaded(tmp_path: Path) -> None:
    script = load_kernel_script(write(tmp_path, more=", restrictions=['block_size_x > 32']"))
    assert script.name == "some_kernel"
    assert script.language is None
    assert script.kernel_text() == "void k() {}"
    assert script.argument_facts() == (
        {"shape": [4, 8], "dtype": "float16"},
        {"dtype": "int32", "value": 3},
    )
    assert script.constraints() == ("block_size_x > 32",)
    assert script.problem_size() == "64"
    assert not script.verified


def test_files_lie_beside_the_script_wherever_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "k.cu").write_text("__global__ void k() {}")
    path = write(folder, source="'k.cu'")
    monkeypatch.chdir(tmp_path)
    script = load_kernel_script(path)
    assert script.arguments["kernel_source"] == "__global__ void k() {}"
    several = load_kernel_script(write(folder, source="['k.cu', 'k.cu']"))
    assert several.arguments["kernel_source"] == [str(folder / "k.cu")] * 2
    assert several.kernel_text().count("__global__") == 2


def test_it_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_kernel.py").write_text("TEXT = 'void k() {}'\n")
    before = "import neighbour_of_a_kernel"
    script = load_kernel_script(write(tmp_path, "neighbour_of_a_kernel.TEXT", before=before))
    assert script.kernel_text() == "void k() {}"


def test_functions_are_kept_as_their_code(tmp_path: Path) -> None:
    before = (
        "def source(p):\n    return 'void k() {}'\n"
        "def size(p):\n    return 64\n"
        "def valid(p):\n    return p['block_size_x'] > 32\n"
    )
    path = write(tmp_path, "source", more=", restrictions=valid", before=before)
    path.write_text(path.read_text().replace("problem_size=64", "problem_size=size"))
    script = load_kernel_script(path)
    assert script.kernel_text().startswith("def source(p)")
    assert script.constraints()[0].startswith("def valid(p)")
    assert script.problem_size().startswith("def size(p)")


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"before": "1 / 0"}, "must load, but raised ZeroDivisionError"),
        ({"more": ", strategy='pso'"}, r"got \['strategy'\]: leave them out"),
        ({"more": ", kernel='k'"}, r"got \['kernel'\]"),
        ({"source": "None"}, r"\['kernel_source'\] are missing"),
        ({"source": "1 / 0"}, "must return, but raised ZeroDivisionError"),
        ({"source": "__import__('pathlib').Path('gone.cu')"}, "gone.cu is not"),
        ({"before": "INFO = {'title': 'x'}"}, "INFO of .* must be a dict with some of"),
        ({"before": "INFO = {'default_configuration': {'x': 1}}"}, "a value to each of"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, parts: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecordingError, match=complaint):
        load_kernel_script(write(tmp_path, **parts))


def test_a_file_without_the_function_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    with pytest.raises(RecordingError, match="is not a file"):
        load_kernel_script(path)
    path.write_text("")
    with pytest.raises(RecordingError, match=r"must define a function tune_kernel_arguments\(\)"):
        load_kernel_script(path)
    path.write_text("def tune_kernel_arguments(): return []")
    with pytest.raises(RecordingError, match="must return a dict"):
        load_kernel_script(path)


def test_scalars_of_a_default_may_be_numpys(tmp_path: Path) -> None:
    info = "INFO = {'default_configuration': {'block_size_x': np.int64(32)}}"
    script = load_kernel_script(write(tmp_path, before=info))
    assert script.default_configuration == {"block_size_x": np.int64(32)}


def test_sizes_are_arguments_of_its_function(tmp_path: Path) -> None:
    path = write(tmp_path)
    sized = path.read_text().replace("arguments():", "arguments(count=64, kind='even'):")
    path.write_text(sized.replace("problem_size=64", "problem_size=(count, kind)"))
    assert load_kernel_script(path).problem_size() == '[64, "even"]'
    script = load_kernel_script(path, parse_sizes(["count=128", "kind=odd"]))
    assert script.problem_size() == '[128, "odd"]'
    assert script.name == "some_kernel-128xodd"
    with pytest.raises(RecordingError, match=r"got \['width'\]; it takes count, kind"):
        load_kernel_script(path, {"width": 3})
    with pytest.raises(RecordingError, match="it takes none: give it parameters"):
        load_kernel_script(write(tmp_path), {"width": 3})


@pytest.mark.parametrize("wrong", [["count"], ["count="], ["=3"], ["1x=3"], ["n=1", "n=2"]])
def test_a_size_has_a_name_and_a_value(wrong: list[str]) -> None:
    with pytest.raises(RecordingError, match=r"NAME=VALUE, and each name must come once"):
        parse_sizes(wrong)
