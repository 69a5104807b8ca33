"""What the timing process checks, on the CPU: Triton's interpreter stands in for the GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")


@pytest.fixture(scope="module")
def found(interpreted: dict[str, Any]) -> dict[str, Any]:
    timing: dict[str, Any] = interpreted["timing"]
    return timing


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


def test_times_are_quartiles_of_single_launches_on_a_cold_cache(
    interpreted: dict[str, Any],
) -> None:
    clock = interpreted["clock"]  # launches that take 1 ms more each
    assert clock["launches"] >= 5
    assert clock["low_ms"] < clock["time_ms"] < clock["high_ms"]
    assert clock["time_ms"] - clock["low_ms"] == clock["launches"] // 2 - clock["launches"] // 4
    assert clock["cleared"] == clock["launches"] + 3  # those of the estimate, too
    assert clock["calls"] == clock["cleared"] + 1  # the first is not timed
    # A head start is given once, between the launches of the estimate and those that are timed.
    assert [i for i, cycles in enumerate(clock["spins"]) if cycles] == [4]
    assert clock["spins"][4] == round(2.0 * 1.9e6)
    # Launches that take the processor longer than the GPU get one as long as all of them take.
    assert clock["spins_of_a_slow_launch"] == [round(50.0 * 1.9e6)]


def test_integers_and_complex_numbers_are_compared_exactly_and_whole() -> None:
    from llamea_gpu.frameworks.helion.timing import difference, poison_value

    places = torch.arange(1000)
    off = places.clone()
    off[999] -= 1
    assert difference([off], [places])
    assert not difference([places.clone()], [places])
    waves = torch.complex(torch.ones(8), torch.ones(8))
    assert not difference([waves.clone()], [waves])
    assert difference([waves.conj().resolve_conj()], [waves])
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool, torch.float16):
        poisoned = torch.full((1,), 1, dtype=dtype).fill_(poison_value(dtype))
        assert bool(poisoned[0])


def test_arguments_are_compared_bit_by_bit() -> None:
    from llamea_gpu.frameworks.helion.timing import bits

    given = torch.tensor([1.0, float("nan")])
    assert torch.equal(bits(given), bits(given.clone()))
    for dtype in (torch.bool, torch.float8_e4m3fn, torch.bfloat16, torch.int64, torch.complex64):
        columns = torch.ones(4, 6).to(dtype).T  # strides as of a matrix by columns
        assert torch.equal(bits(columns), bits(columns.clone()))


def test_a_difference_is_relative_to_the_element_and_to_all() -> None:
    from llamea_gpu.frameworks.helion.timing import difference

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
        assert bool(difference([other], [right])) is wrong, (place, error)
    assert difference([right], [right, right])
    assert not difference([torch.zeros(3)], [torch.zeros(3)])
    low = right.to(torch.bfloat16)
    other = low.clone()
    other[5] = 0.015
    assert not difference([other], [low])  # coarser types may differ by more


def test_what_is_right_on_a_node_is_what_helion_finds(interpreted: dict[str, Any]) -> None:
    assert interpreted["what is right"] == {"right": [[], True], "in place": [[0], True]}
