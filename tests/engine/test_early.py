"""Whether CUDA is in use, and the copy of a process from before: with a driver of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the driver answers before and after it was initialised.
DRIVER = """
#include <stddef.h>
static int begun;
int cuInit(unsigned flags) { begun = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return begun ? 0 : 3; }
int cuMemGetInfo_v2(size_t *left, size_t *all) { *left = 5; *all = 9; return begun ? 0 : 3; }
"""
PROGRAM = """
import ctypes
from llamea_gpu.engine.early import early_template, fork_early
from llamea_gpu.engine.nvidia import cuda_in_use, free_memory

assert (cuda_in_use(), free_memory(), early_template()) == (False, None, None)
driver = ctypes.CDLL("libcuda.so.1")
assert (cuda_in_use(), free_memory()) == (False, None)
early = {early}
if early:
    fork_early()
driver.cuInit(0)
assert (cuda_in_use(), free_memory()) == (True, 5)
fork_early()
template = early_template()
assert (template is not None) == early
if early:
    fork_early()
    assert early_template() is template
    template.stop()
    assert early_template() is None  # started anew it would be a copy of what uses CUDA
"""


@pytest.mark.parametrize("early", [True, False])
def test_a_copy_is_made_before_cuda_is_used_or_not_at_all(tmp_path: Path, early: bool) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", str(tmp_path / "driver.c"), "-o", str(library)]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{early}", str(early))],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
