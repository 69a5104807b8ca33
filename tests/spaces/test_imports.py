"""What importing costs: the sandboxed child needs the space and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["space", "recording"])
def test_arrays_need_numpy_and_the_standard_library_only(module):
    code = (
        "import sys; before = set(sys.modules)\n"
        f"import llamea_gpu.spaces.{module}\n"
        "tops = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - {'numpy', 'llamea_gpu'}))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("use", ["list_spaces()", "search_path_from_environment()"])
def test_listing_reads_no_parquet(use):
    code = (
        "import sys\n"
        "from llamea_gpu.spaces.catalogue import list_spaces, search_path_from_environment\n"
        f"{use}; print('pyarrow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
