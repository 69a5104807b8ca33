"""The CUDA kernels that ship: their spaces, and that they compute what they say.

Kernels run on the CPU in an emulation of threads and barriers, as the very text that Kernel Tuner
would compile; what they cost on a GPU is no matter here.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import random
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from kernel_tuner.searchspace import Searchspace
from support.cuda_emulation import EmulatedKernel

from llamea_gpu.frameworks.kernel_tuner.kernel_script import load_kernel_script
from llamea_gpu.resources import resource_dir

FOLDER = resource_dir("tuning_spaces") / "kernels" / "kernel_tuner"
# Small enough for an emulation, large enough for several blocks of most configurations.
SIZES: dict[str, dict[str, int]] = {
    "matmul": {"m": 256, "n": 256, "k": 48},
    "convolution": {"width": 150, "height": 70},
    "stencil": {"width": 256, "height": 64, "depth": 192},
    "reduction": {"rows": 64, "columns": 4096},
    "nbody": {"count": 4096},
    "transpose": {"rows": 256, "columns": 512},
    "row_norm": {"rows": 32},
    "bilateral_filter": {"width": 512, "height": 64},
    "depthwise_convolution": {"images": 2, "height": 28, "channels": 128},
    "distance_matrix": {"rows": 128, "columns": 128, "dimensions": 128},
    "histogram": {"count": 16384},
    "sparse_matvec": {"rows": 1024, "values_per_row": 24},
}


def sizes(name: str, configuration: dict[str, Any]) -> dict[str, int]:
    """Problem sizes that the configuration divides."""
    c = configuration
    if name == "nbody":
        bodies = c["block_size_x"] * c["bodies_per_thread"]
        return {"count": max(1024, 2 * bodies, c["split"] * c["tile"])}
    if name != "stencil":
        return SIZES[name]
    return {
        "width": max(64, c["block_size_x"] * c["tile_x"]),
        "height": max(16, c["block_size_y"] * c["tile_y"]),
        "depth": 2 * c["planes"] if c["planes"] < 64 else c["planes"],
    }


MAX_THREADS = 1024


@functools.cache
def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shipped_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@functools.cache
def searchspace(name: str) -> Searchspace:
    script = module(name)
    return Searchspace(script.TUNE_PARAMS, script.RESTRICTIONS, MAX_THREADS)


def chosen(name: str, count: int) -> list[dict[str, Any]]:
    """Configurations spread over the space: together they have every value of every parameter."""
    space = searchspace(name)
    left = {(i, value) for i, values in enumerate(space.params_values) for value in values}
    shuffled = random.Random(0).sample(space.list, len(space.list))
    found = []
    while left:
        best = max(shuffled, key=lambda c: sum((i, v) in left for i, v in enumerate(c)))
        left -= set(enumerate(best))
        found.append(best)
    found = (found + shuffled)[: max(count, len(found))]
    return [dict(zip(space.param_names, values, strict=True)) for values in found]


@pytest.mark.parametrize("name", SIZES)
def test_a_space_has_2000_valid_configurations_and_mostly_invalid_ones(name: str) -> None:
    space = searchspace(name)
    product = math.prod(map(len, space.params_values))
    assert space.size >= 2000
    assert space.size <= 0.5 * product
    for position, values in enumerate(space.params_values):
        assert {c[position] for c in space.list} == set(values), space.param_names[position]


@pytest.mark.parametrize("name", SIZES)
def test_the_readme_gives_the_numbers_of_the_space(name: str) -> None:
    space = searchspace(name)
    share = space.size / math.prod(map(len, space.params_values))
    row = f"| {len(space.params_values)} | {space.size:,} | {share:.1%} |".replace("%", " %")
    text = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    lines = text.partition("## `kernel_tuner/`")[2].partition("\n## ")[0].splitlines()
    assert [line.endswith(row) for line in lines if line.startswith(f"| `{name}.py`")] == [True]


@pytest.mark.parametrize("name", SIZES)
def test_the_script_documents_every_parameter_and_names_a_valid_default(name: str) -> None:
    script = module(name)
    assert all(f"``{parameter}``" in (script.__doc__ or "") for parameter in script.TUNE_PARAMS)
    default = script.INFO["default_configuration"]
    assert list(default) == list(script.TUNE_PARAMS)
    assert tuple(default.values()) in set(searchspace(name).list)


@pytest.mark.parametrize("name", SIZES)
def test_the_script_loads_as_the_recorder_loads_it(name: str, tmp_path: Path) -> None:
    script = load_kernel_script(FOLDER / f"{name}.py") if name == "convolution" else None
    if script is None:  # without the full-size reference: these take a second
        small = tmp_path / f"{name}.py"
        shutil.copy(FOLDER / f"{name}.cu", tmp_path)
        call = ", ".join(f"{key}={value}" for key, value in SIZES[name].items())
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        small.write_text(f"{text}\n_full = tune_kernel_arguments\n"
                         f"tune_kernel_arguments = lambda: _full({call})\n")  # fmt: skip
        script = load_kernel_script(small)
    assert "__global__" in script.kernel_text()
    assert script.name.startswith(name)
    assert script.verified


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which kernels are built."""
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize("name", SIZES)
def test_it_computes_its_reference_in_any_order_of_threads(name: str, emulated: Path) -> None:
    if shutil.which("g++") is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("kernels are checked in an emulation: install g++")
        pytest.skip("no g++")
    script = module(name)
    for configuration in chosen(name, count=4):
        arguments = script.tune_kernel_arguments(**sizes(name, configuration))
        kernel = EmulatedKernel(arguments, configuration, emulated)
        for order in (0, 1, 2):
            result = kernel.run(order)
            assert script.close_enough(arguments["answer"], result), (configuration, order)


BARRIER = """
extern "C" __global__ void reversed(float *out, const float *in) {
    __shared__ float held[32];
    held[threadIdx.x] = in[threadIdx.x];
    BARRIER
    out[threadIdx.x] = held[31 - threadIdx.x];
}
"""


@pytest.mark.parametrize(
    ("barrier", "complaint"),
    [
        ("__syncthreads();", None),
        ("", "wrong"),
        ("if (threadIdx.x < 9) __syncthreads();", "a barrier that not all reach"),
    ],
)
def test_the_emulation_notices_missing_barriers(
    barrier: str, complaint: str | None, emulated: Path
) -> None:
    values = np.arange(32, dtype=np.float32)
    arguments = {
        "kernel_name": "reversed",
        "kernel_source": BARRIER.replace("BARRIER", barrier),
        "problem_size": 32,
        "arguments": [np.zeros(32, dtype=np.float32), values],
    }

    def check() -> None:
        kernel = EmulatedKernel(arguments, {"block_size_x": 32}, emulated)
        results = [kernel.run(order)[0] for order in (0, 1, 2)]
        assert all((result == values[::-1]).all() for result in results), "wrong"

    if complaint is None:
        check()
        return
    with pytest.raises(AssertionError, match=complaint):
        check()
