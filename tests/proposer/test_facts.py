"""Facts of GPUs, and bounds that follow from arguments."""

from __future__ import annotations

import pytest

from llamea_gpu.prompting.proposer import Argument
from llamea_gpu.searchers.llm.workload import find_device, roofline


def tensor(*shape: int, dtype: str = "torch.bfloat16") -> Argument:
    return Argument(shape=shape, dtype=dtype)


H200 = find_device("NVIDIA H200")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("A100", "NVIDIA A100"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA RTX A4000", "NVIDIA RTX A4000"),
        ("RTX_3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("Tesla V100-PCIE-16GB", "NVIDIA V100 PCIe"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA RTX A4000 Laptop GPU", None),
        ("MI250X", "AMD Instinct MI250X (one die)"),
        ("NVIDIA GH2000", None),
        ("a GPU", None),
        ("", None),
    ],
)
def test_a_device_is_found_by_the_names_that_recordings_use(name: str, title: str | None) -> None:
    found = find_device(name)
    assert (found.title if found else None) == title


def test_what_depends_on_the_variant_is_left_out() -> None:
    assert find_device("A100").bandwidth_gb_s is None  # type: ignore[union-attr]


def test_a_matmul() -> None:
    found = roofline("matmul", "", [tensor(2048, 4096), tensor(4096, 1024)], H200)
    assert found is not None
    assert found.flops == 2 * 2048 * 4096 * 1024
    assert found.gb == pytest.approx(2 * (2048 * 4096 + 4096 * 1024 + 2048 * 1024) / 1e9)
    assert found.memory_ms == pytest.approx(found.gb / 4800 * 1e3)
    assert found.compute_ms == pytest.approx(found.flops / 989e12 * 1e3)


def test_a_batched_matmul() -> None:
    found = roofline("batched_matmul", "", [tensor(8, 64, 32), tensor(8, 32, 16)], H200)
    assert found is not None
    assert found.flops == 2 * 8 * 64 * 32 * 16


def test_fp32_may_be_multiplied_as_tf32() -> None:
    found = roofline("matmul", "", [tensor(64, 64, dtype="torch.float32")] * 2, H200)
    assert found is not None
    assert (found.format, found.compute_ms) == ("tf32", pytest.approx(2 * 64**3 / 494e12 * 1e3))
    ampere = find_device("NVIDIA RTX A4000")
    plain = roofline("matmul", "", [tensor(64, 64, dtype="torch.float32")] * 2, ampere)
    assert plain is not None
    assert (plain.format, plain.compute_ms) == ("fp32", pytest.approx(2 * 64**3 / 19.2e12 * 1e3))


def test_an_expanded_dimension_is_read_once() -> None:
    bias = Argument(shape=(4096, 8192), dtype="torch.bfloat16", strides=(0, 1))
    found = roofline("add", "", [tensor(4096, 8192), bias], H200)
    assert found is not None
    assert found.gb == pytest.approx(2 * (4096 * 8192 + 8192) / 1e9)


@pytest.mark.parametrize("kernel", ["linear_attention", "sliding_window_attention"])
def test_attention_that_does_less_has_no_bound_on_its_operations(kernel: str) -> None:
    found = roofline(kernel, "", [tensor(2, 4, 128, 64)] * 3, H200)
    assert found is not None
    assert (found.flops, found.compute_ms) == (0, None)


def test_attention_with_and_without_a_mask() -> None:
    arguments = [tensor(2, 4, 128, 64, dtype="torch.float16")] * 3
    plain = roofline("attention", "", arguments, H200)
    causal = roofline("attention", "# causal mask", arguments, H200)
    assert plain is not None
    assert causal is not None
    assert plain.flops == 4 * 2 * 4 * 128**2 * 64
    assert (causal.flops, causal.compute_ms) == (0, None)
    assert causal.memory_ms == plain.memory_ms


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        ("softmax", [tensor(4096, 4096)]),
        ("matmul", [tensor(64, 32), tensor(64, 32)]),  # cannot be multiplied
        ("attention", [tensor(2, 4, 128, 64), tensor(2, 4, 64, 64), tensor(2, 4, 64, 64)]),
    ],
)
def test_elsewhere_only_the_bytes_are_bounded(kernel: str, arguments: list[Argument]) -> None:
    found = roofline(kernel, "", arguments, H200)
    assert found is not None
    assert (found.flops, found.compute_ms) == (0, None)
    assert found.says == "every argument read once, if all of it is needed,"


@pytest.mark.parametrize(
    "arguments",
    [[], [Argument(value="3")], [tensor(4, 4, dtype="torch.complex64")], [tensor(4, 4, dtype="")]],
)
def test_nothing_is_said_where_it_is_not_known(arguments: list[Argument]) -> None:
    assert roofline("matmul", "", arguments, H200) is None
    assert roofline("matmul", "", [tensor(4, 4)] * 2, None) is None
    assert roofline("matmul", "", [tensor(4, 4)] * 2, find_device("A100")) is None


def test_a_format_without_a_rate_bounds_the_bytes_alone() -> None:
    found = roofline("matmul", "", [tensor(64, 64, dtype="torch.int32")] * 2, H200)
    assert found is not None
    assert (found.flops, found.compute_ms) == (0, None)
