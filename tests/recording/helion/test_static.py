"""GPUs that are not there, with real Helion and real Triton down to machine code."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.recorder_stages import FakeStage, PretendedStage, served
from typer.testing import CliRunner

from llamea_gpu.cli import app
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Pipeline, Task
from llamea_gpu.engine.template import ForkedTemplate
from llamea_gpu.errors import RecordingError, SpaceError
from llamea_gpu.frameworks.helion.compiling import Resources, compile_file, generate
from llamea_gpu.frameworks.helion.kernel_script import (
    find_script,
    load_case,
    shapes_of,
    shipped_kernels,
)
from llamea_gpu.frameworks.helion.stages import CompileStage
from llamea_gpu.frameworks.helion.static import GPUS, StaticReport, _why_not, pretend_gpu
from llamea_gpu.recording._base import HelionSettings
from llamea_gpu.recording.helion import static_filter
from llamea_gpu.recording.helion.grid import propose_grid, read_grid, slots_of
from llamea_gpu.recording.helion.record import plan_recording

torch = pytest.importorskip("torch")
pytest.importorskip("helion")


def test_everything_is_put_back() -> None:
    import triton
    from torch._inductor.runtime.hints import DeviceProperties

    watched = ("is_available", "device_count", "get_device_properties", "_lazy_init")
    before = [getattr(torch.cuda, name) for name in watched]
    version, create = torch.version.cuda, DeviceProperties.create
    driver = triton.runtime.driver._active
    with contextlib.suppress(ZeroDivisionError), pretend_gpu("B200"):
        assert torch.cuda.get_device_name() == "NVIDIA B200"
        assert torch.cuda.get_device_capability() == (10, 0)
        raise ZeroDivisionError
    assert [getattr(torch.cuda, name) for name in watched] == before
    assert (torch.version.cuda, DeviceProperties.create) == (version, create)
    assert triton.runtime.driver._active is driver


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (Resources(registers=64, shared_bytes=227 << 10, num_warps=32), ""),
        (Resources(registers=65, num_warps=32), "needs 73728 registers a block"),  # in units of 8
        (Resources(shared_bytes=(227 << 10) + 1), "needs 232449 bytes of shared memory a block"),
        (Resources(num_warps=33), "needs 1056 threads a block, but there are 1024"),
        (Resources(tensor_memory_columns=513), "needs 513 columns of tensor memory"),
        # The first of several: shared memory is what a configuration can be made smaller by.
        (Resources(shared_bytes=1 << 20, num_warps=64, registers=255), "shared memory"),
    ],
)
def test_what_a_block_may_need(needs: Resources, reason: str) -> None:
    found = _why_not(GPUS["H200"], needs)
    assert reason in found
    assert bool(found) is bool(reason)


def test_unknown_and_nested_gpus_are_refused() -> None:
    with pytest.raises(SpaceError, match="must be one of"), pretend_gpu("GTX 970"):
        pass
    with pretend_gpu("H100"):
        with pytest.raises(SpaceError, match="H100 already is"), pretend_gpu("A100"):
            pass
        assert torch.cuda.get_device_name().startswith("NVIDIA H100")


def test_every_shipped_kernel_has_a_space_for_a_b200() -> None:
    assert len(shipped_kernels()) >= 15
    with pretend_gpu("B200") as pretended:
        for name, script in shipped_kernels().items():
            case = pretended.load_case(script)
            assert case.name == name
            bound = pretended.bind(case.kernel, case.arguments)
            default = dict(bound.config_spec.default_config().config)
            grid = propose_grid(slots_of(bound), 2000)
            assert 500 < grid.size <= 2000, name
            grid.config(grid.size - 1, default)


def test_the_space_is_that_of_the_gpu_asked_for() -> None:
    slots: dict[str, set[str]] = {}
    for gpu in ("B200", "H200", "A100"):
        with pretend_gpu(gpu) as pretended:
            case = pretended.load_case(find_script("swiglu"))
            bound = pretended.bind(case.kernel, case.arguments)
            slots[gpu] = {slot.name for slot in slots_of(bound)}
    # What Blackwell alone has; descriptors are of Hopper and later.
    blackwell = {"epilogue_subtile", "range_warp_specializes[0]"}
    assert slots["B200"] - slots["H200"] == blackwell
    assert slots["H200"] - slots["A100"] == {"host_tensor_descriptors"}


@pytest.mark.parametrize(("first", "loads"), [(0, 2), (1, 1)])
def test_code_is_that_for_arguments_with_storage(first: int, loads: int) -> None:
    """What the allocator hands out is aligned, so that it can be loaded by descriptors."""
    with pretend_gpu("H200") as pretended:
        case = pretended.load_case(find_script("matmul"))
        with pretended.fake_tensors():
            a, b = (torch.empty(2048 * 2048 + first, dtype=t.dtype) for t in case.arguments[:2])
            a = torch.as_strided(a, (2048, 2048), (2048, 1), 0)
            b = torch.as_strided(b, (2048, 2048), (2048, 1), first)
        bound = pretended.bind(case.kernel, (a, b, *case.arguments[2:]))
        default = dict(bound.config_spec.default_config().config)
        indexing = ["tensor_descriptor"] * len(default["indexing"])
        source = generate(bound, {**default, "indexing": indexing})
        assert source.count("_desc.load(") == loads


@pytest.mark.parametrize(("gpu", "tensor_memory"), [("B200", True), ("H200", False)])
def test_a_configuration_is_compiled_and_weighed(gpu: str, tensor_memory: bool) -> None:
    with pretend_gpu(gpu) as pretended:
        case = pretended.load_case(find_script("matmul"))
        bound = pretended.bind(case.kernel, case.arguments)
        default = dict(bound.config_spec.default_config().config)
        fine = pretended.compile(bound, case.arguments, {**default, "num_stages": 2})
        assert fine.fits
        assert not fine.reason
        assert fine.gpu == gpu
        assert 16 <= fine.registers <= 255
        assert 0 < fine.shared_bytes <= 227 * 1024
        assert (fine.tensor_memory_columns > 0) is tensor_memory
        # Two operands of 256 x 128 in bfloat16, six stages of them.
        huge = {**default, "block_sizes": [256, 256, 128], "num_stages": 6}
        report = pretended.compile(bound, case.arguments, huge)
        assert not report.fits
        assert report.shared_bytes >= 6 * 2 * 256 * 128 * 2
        assert "shared memory" in report.reason
        refused = pretended.compile(bound, case.arguments, {**default, "num_warps": 3})
        assert not refused.fits
        assert refused.reason


def test_a_type_that_the_gpu_lacks_does_not_compile() -> None:
    with pretend_gpu("A100") as pretended:
        case = pretended.load_case(find_script("fp8_matmul"), "small")
        bound = pretended.bind(case.kernel, case.arguments)
        report = pretended.compile(bound, case.arguments, bound.config_spec.default_config())
    assert not report.fits
    assert "fp8e4nv not supported" in report.reason


HANGING = """
import ctypes
from llamea_gpu.frameworks.helion import stages
generate = stages.generate

def hang(bound, config):
    # As in a compiler that loops: no signal handler and no other thread gets a turn.
    return ctypes.PyDLL(None).sleep(600) if config["num_warps"] == 1 else generate(bound, config)

stages.generate = hang
"""


def test_what_has_no_report_is_reported_as_not_fitting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fitting = StaticReport("H200", True, "", registers=32)
    configs = [{"report": asdict(fitting)}, {"x": 1, "compile": "hang"}, {"compile": "crash"}]
    stage = FakeStage("compile", tmp_path)
    monkeypatch.setattr(static_filter, "StaticStage", lambda *_: stage)
    monkeypatch.setattr(static_filter, "PRELOAD", ())  # this stage has no use for Helion
    found = static_filter.static_reports(Path("k.py"), "H200", configs, workers=2, timeout_s=3)
    assert found[0] == fitting
    assert [(report.gpu, report.fits) for report in found[1:]] == [("H200", False)] * 2
    assert "timeout: over 3 s" in found[1].reason
    assert "signal 11" in found[2].reason


def test_the_stage_of_the_filter_weighs_a_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_STORE_BINARY_ONLY"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))  # put back, as TMPDIR
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = find_script("row_sum")
    stage = pickle.loads(pickle.dumps(static_filter.StaticStage(script, "small", "H200", tmp_path)))
    _, results = served(stage, [{"block_sizes": [1, 1024], "num_warps": w} for w in (4, 3)])
    assert [result["status"] for result in results] == ["ok", "ok"]
    assert [StaticReport(**result["report"]).fits for result in results] == [True, False]


def test_what_one_process_compiles_another_finds_and_a_compiler_that_hangs_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    script = tmp_path / "row_sum.py"
    script.write_text(find_script("row_sum").read_text() + HANGING)
    hits: list[bool] = []
    monkeypatch.setattr(
        triton.knobs.compilation, "listener", lambda *, cache_hit, **_: hits.append(cache_hit)
    )
    configs = [{"block_sizes": [1, 1024], "num_warps": warps} for warps in (2, 4, 3, 1)]
    stage = PretendedStage(CompileStage(script, "small", tmp_path), "H200")
    timing = FakeStage("time", tmp_path)
    with (
        # Of this process, in which Helion is: that a fresh one imports it, others test.
        ForkedTemplate(tmp_path / "template.log") as template,
        Pipeline([stage], [timing], tmp_path, Limits(compile_s=8), template) as pipeline,
    ):
        found = {o.point: o for o in pipeline.run([Task(*each) for each in enumerate(configs)])}
    statuses = [found[i].status for i in range(4)]
    assert statuses == ["ok", "ok", "compile_error", "timeout"]
    assert "num_warps" in found[2].details["message"]
    assert found[0].compile_s > 0
    assert found[0].details["source"] != found[1].details["source"]
    compiled = Path(found[0].details["path"])
    with pretend_gpu("H200") as pretended:
        case = pretended.load_case(find_script("row_sum"), "small")
        for name, expected in (("triton", True), ("elsewhere", False)):
            monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / name))
            hits.clear()
            with pretended.fake_tensors():
                compile_file(compiled, case.name, case.arguments)
            assert hits == [expected]
        # So does a launch with tensors that have storage.
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
        hits.clear()
        real = load_case(find_script("row_sum"), "small")
        compile_file(compiled, real.name, real.arguments)
        assert hits == [True]


def test_a_plan_describes_kernel_and_grid(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('[slots]\n"block_sizes[0]" = [1, 2]\nnum_warps = [4, 8]\n')
    with pretend_gpu("H200"):
        plan = plan_recording(find_script("row_sum"), HelionSettings(grid=grid, shape="small"))
        assert plan.grid == read_grid(grid)
        assert plan.name == "row_sum-1024x4096"
        assert plan.arguments == ({"shape": [1024, 4096], "dtype": "torch.float32"},)
        assert "def row_sum" in plan.kernel_source
        json.dumps([plan.default_config, plan.arguments])
        jagged = plan_recording(find_script("grouped_matmul"), HelionSettings(shape="small"))
        assert jagged.arguments[-1] == {"value": 384}  # rows of the longest group
        grid.write_text('[slots]\n"block_sizes[5]" = [1, 2]\n')
        with pytest.raises(RecordingError, match=r"block_sizes\[5\] is not"):
            plan_recording(find_script("row_sum"), HelionSettings(grid=grid))
        grid.write_text("[slots]\nnum_warp = [4, 8]\n")
        with pytest.raises(RecordingError, match=r"'num_warp' is not; it has .*num_warps"):
            plan_recording(find_script("row_sum"), HelionSettings(grid=grid))


def test_describe_shows_slots_and_the_filter_and_says_static(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def reports(_script: Path, gpu: str, configs: list[Any], *_: Any, **__: Any) -> Any:
        asked.extend(configs)
        return [StaticReport(gpu, False, "too large", shared_bytes=300_000) for _ in configs]

    monkeypatch.setattr("llamea_gpu.recording.helion.static_filter.static_reports", reports)
    command = ["spaces", "describe-helion", "row_sum", "--gpu", "B200", "--compile", "3"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["note"].startswith("STATIC")
    assert {"block_sizes[0]", "num_warps", "pid_type"} <= {slot["name"] for slot in found["slots"]}
    assert [row["kind"] for row in found["compiled"]][-3:] == ["random"] * 3
    assert [row["config"] for row in found["compiled"]] == asked
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "STATIC" in again.output
    assert "too large" in again.output
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]  # drawn from a seed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", r"must define helion_kernel\(\)"),
        ("1 / 0\n", "must load, but .* raised ZeroDivisionError"),
        ("def helion_kernel():\n    return 1, 2, 3\n", "must return"),
        ("def helion_kernel():\n    raise ValueError('no')\n", "raised ValueError: no"),
    ],
)
def test_a_script_that_breaks_the_convention_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    script = tmp_path / "k.py"
    script.write_text(text)
    with pytest.raises(RecordingError, match=problem):
        load_case(script)


def test_scripts_and_shapes_that_are_not_there_are_refused() -> None:
    assert shapes_of(find_script("rope")) == ("small", "medium", "large")
    with pytest.raises(RecordingError, match="attention, batched_matmul"):
        find_script("no_such_kernel")
    with pytest.raises(RecordingError, match="small, medium, large"):
        load_case(find_script("rope"), "huge")
