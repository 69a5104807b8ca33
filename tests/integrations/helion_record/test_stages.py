"""What the timing process checks, on the CPU: Triton's interpreter stands in for the GPU.

Only the clock is replaced. The interpreter is chosen when Triton is imported, so that it has a
process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")

KERNELS = """
import helion, helion.language as hl, torch

@helion.kernel(static_shapes=True)
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out

@helion.kernel(static_shapes=True)
def double_in_place(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] * 2
    return x

SHAPES = {"right": 0, "wrong": 1, "in place": 2}

def helion_kernel(shape):
    x = torch.rand(100) + 1
    if shape == "in place":
        return double_in_place, (x,), lambda x: x * 2
    factor = 2.0 if shape == "right" else 2.2
    return double, (x,), lambda x: x * factor
"""
SCRIPT = r"""
import json, sys, types
from pathlib import Path
import torch
from llamea_gpu.errors import RecordingError
from llamea_gpu.integrations.helion import stages
from llamea_gpu.integrations.helion.compiling import generate
from llamea_gpu.integrations.helion.kernels import load_case

folder = Path(sys.argv[1])
torch.cuda.synchronize = lambda: None
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(
    major=9, minor=0, multi_processor_count=132
)
calls = []

def time_call(call):
    calls.append(call())
    return {"time_ms": 0.5 * len(calls)}

stages.time_call = time_call
stages.CONTROL_EVERY = 3
script = folder / "kernels.py"
found = {}
for shape in ("wrong", "in place"):
    try:
        stages._Bench(load_case(script, shape))
    except RecordingError as error:
        found[shape] = str(error)
case = load_case(script, "right")
bench = stages._Bench(case)
found["facts"] = bench.facts()
bound = case.kernel.bind(case.arguments)
source = generate(bound, bound.config_spec.default_config())
assert source.count("[], 2.0,") == 1, source
codes = {
    "fine": source,
    "slightly off": source.replace("[], 2.0,", "[], 2.001,"),
    "off": source.replace("[], 2.0,", "[], 2.2,"),
    "not a number": source.replace("[], 2.0,", "[], float('nan'),"),
    "another type": source.replace("torch.empty_like(x)", "torch.empty_like(x).double()"),
    "raises": source.replace("out = torch", "out = torsch"),
    "does not load": "1 / 0",
}
for name, code in codes.items():
    path = folder / "code.py"
    path.write_text(code)
    found[name] = dict(bench.timed({"path": str(path)}))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "kernels.py").write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_default_configuration_that_is_wrong_is_refused(found: dict[str, Any]) -> None:
    assert "must agree with the reference" in found["wrong"]
    assert "0.0909" in found["wrong"]  # the relative error of 2 to 2.2


def test_a_kernel_that_changes_its_arguments_is_refused(found: dict[str, Any]) -> None:
    assert "double_in_place changes them" in found["in place"]


def test_the_facts_name_machine_default_and_reference(found: dict[str, Any]) -> None:
    facts = found["facts"]
    assert facts["capability"] == "9.0"
    assert (facts["default_ms"], facts["reference_ms"]) == (0.5, 1.0)
    assert facts["relative_error"] < 1e-6


def test_right_results_are_timed_and_wrong_ones_are_not(found: dict[str, Any]) -> None:
    assert found["fine"]["status"] == "ok"
    assert found["slightly off"]["status"] == "ok"
    for name in ("off", "not a number", "another type"):
        assert found[name]["status"] == "incorrect", name
        assert "time_ms" not in found[name]
    assert "more than 0.01 of its scale" in found["off"]["message"]
    assert "other shapes or types" in found["another type"]["message"]
    assert found["fine"]["benchmark_s"] > 0


def test_what_a_launch_raises_is_data(found: dict[str, Any]) -> None:
    for name, said in (("raises", "torsch"), ("does not load", "ZeroDivisionError")):
        assert found[name]["status"] == "runtime_error"
        assert said in found[name]["message"]
        assert found[name]["broken"] is False


def test_the_default_is_timed_again_now_and_then(found: dict[str, Any]) -> None:
    order = ["fine", "slightly off", "off", "not a number", "another type", "raises"]
    controlled = [name for name in order if "control_ms" in found[name]]
    assert controlled == ["off", "raises"]


def test_a_difference_is_relative_to_the_element_and_to_all() -> None:
    from llamea_gpu.integrations.helion.stages import _difference

    right = torch.zeros(10_000)
    right[0] = 100.0  # root mean square 1
    for place, error, wrong in (
        (0, 0.9, False),
        (0, 1.1, True),
        (5, 0.009, False),
        (5, 0.02, True),
    ):
        other = right.clone()
        other[place] += error
        assert bool(_difference([other], [right])) is wrong, (place, error)
    assert _difference([right], [right, right])
    assert not _difference([torch.zeros(3)], [torch.zeros(3)])
    low = right.to(torch.bfloat16)
    other = low.clone()
    other[5] = 0.015
    assert not _difference([other], [low])  # coarser types may differ by more
