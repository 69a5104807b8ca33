"""Runs one configuration of a Kernel Tuner CUDA kernel on the CPU (see cuda_emulation.h)."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from kernel_tuner import util
from kernel_tuner.core import KernelSource

HEADER = Path(__file__).with_name("cuda_emulation.h")
# -fsanitize=bounds: arrays of known size, which is what lies in shared memory and registers.
# No _FORTIFY_SOURCE, which takes a jump to another stack for an attack.
FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-U_FORTIFY_SOURCE")
CHECKED = ("-fsanitize=bounds", "-fno-sanitize-recover=bounds", "-static-libubsan")


class EmulatedKernel:
    """A kernel as Kernel Tuner would compile it for one configuration, built by g++."""

    def __init__(
        self, arguments: dict[str, Any], configuration: dict[str, Any], folder: Path
    ) -> None:
        self._arguments = arguments
        names = arguments.get("block_size_names") or util.default_block_size_names
        divisors = tuple(arguments.get(f"grid_div_{axis}") for axis in "xyz")
        self.block, self.grid = util.setup_block_and_grid(
            arguments["problem_size"], divisors, configuration, names
        )
        self.block = tuple(int(n) for n in self.block)
        self.grid = (*(int(n) for n in self.grid), 1, 1)[:3]
        source = KernelSource(arguments["kernel_name"], arguments["kernel_source"], "CUDA")
        _, text, _ = source.prepare_list_of_files(
            arguments["kernel_name"], configuration, self.grid, self.block, names
        )
        self.text = text
        self._library = _built(f'#include "{_header(folder)}"\n{text}\n{self._driver()}', folder)

    def run(self, order: int = 0) -> list[Any]:
        """The arguments after one launch; threads take turns in the given order."""
        for name, values in (self._arguments.get("cmem_args") or {}).items():
            symbol = (ctypes.c_float * values.size).in_dll(self._library, name)
            symbol[:] = values.ravel().tolist()
        held = [np.array(argument) for argument in self._arguments["arguments"]]
        pointers = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held))
        dimensions = (ctypes.c_uint * 6)(*self.grid, *self.block)
        assert self._library.emulate(pointers, dimensions, order), "a barrier that not all reach"
        return held

    def _driver(self) -> str:
        """C++ that launches the kernel: every block, and in each every thread."""
        types = []
        for argument in self._arguments["arguments"]:
            c_type = {"float32": "float", "int32": "int"}[str(argument.dtype)]
            types.append((c_type, bool(argument.shape)))
        call = ", ".join(
            f"static_cast<{c_type} *>(given[{i}])" if array else f"*({c_type} *)given[{i}]"
            for i, (c_type, array) in enumerate(types)
        )
        return f"""
static void **given;
extern "C" bool emulate(void **arguments, const unsigned *sizes, int order) {{
    given = arguments;
    emulation::grid = {{sizes[0], sizes[1], sizes[2]}};
    emulation::block = {{sizes[3], sizes[4], sizes[5]}};
    emulation::body = [] {{ {self._arguments["kernel_name"]}({call}); }};
    for (blockIdx.z = 0; blockIdx.z < sizes[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < sizes[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < sizes[0]; blockIdx.x++)
                if (!emulation::run_block(order)) return false;
    return true;
}}
"""


def _compile(*arguments: str) -> None:
    command = ["g++", *FLAGS, *CHECKED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def _header(folder: Path) -> Path:
    """The header, compiled: that halves the time of each kernel. One for a folder."""
    header = folder / HEADER.name
    if not header.exists():
        _compile("-x", "c++-header", str(HEADER), "-o", f"{header}.gch")
        shutil.copy(HEADER, header)
    return header


def _built(text: str, folder: Path) -> ctypes.CDLL:
    stem = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    source, library = stem.with_suffix(".cc"), stem.with_suffix(".so")
    source.write_text(text)
    _compile(str(source), "-o", str(library))
    loaded = ctypes.CDLL(str(library))
    loaded.emulate.restype = ctypes.c_bool
    return loaded
