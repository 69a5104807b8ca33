"""A space as Helion's tunables and back: its real fragments, and a real recording."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from helion import Config
from helion.autotuner import config_fragment as fragments

from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.helion.tunables import Tunables
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.parameters import Value
from llamea_gpu.spaces.space import SearchSpace, SpaceView
from llamea_gpu.tasks import Task

PARAMETERS: tuple[tuple[str, tuple[Value, ...], type], ...] = (
    ("block_m", (16, 32, 64), fragments.BlockSizeFragment),
    ("num_warps", (8, 4, 2, 1), fragments.NumWarpsFragment),
    ("unroll", (1, 2, 4, 8), fragments.PowerOfTwoFragment),
    ("num_stages", (2, 3, 4, 5), fragments.IntegerFragment),
    ("offset", (-1, 0, 1), fragments.IntegerFragment),
    ("block_gaps", (16, 64, 256), fragments.EnumFragment),
    ("multiples", (32, 48, 64), fragments.EnumFragment),
    ("fractions", (0.5, 1.0), fragments.EnumFragment),
    ("huge", (1, 2**900), fragments.EnumFragment),
    ("flag", (False, True), fragments.EnumFragment),
    ("order", ("flat", None), fragments.EnumFragment),
    ("only", (64,), fragments.EnumFragment),
)


def view(names: list[str], values: list[tuple[Value, ...]], configurations: object) -> SpaceView:
    space = SearchSpace(names, values, configurations)  # type: ignore[arg-type]
    return SpaceView(space, np.random.default_rng(0))


@pytest.mark.parametrize(("name", "values", "kind"), PARAMETERS)
def test_a_fragment_has_the_values_and_the_default(
    name: str, values: tuple[Value, ...], kind: type
) -> None:
    space = view([name], [values], np.arange(len(values))[:, None])
    for start in range(len(values)):
        tunables = Tunables(space, (start,), roles=True)
        fragment = tunables.fragments[name]
        assert type(fragment) is kind
        assert fragment.default() == values[start]
        assert set(fragment.search_values()) == set(values)
        for value in fragment.search_values():
            assert tunables.configuration(Config.from_dict({name: value})) == (values.index(value),)


@pytest.mark.parametrize("name", ["block_m", "num_warps"])
def test_without_roles_a_parameter_is_an_ordinary_one(name: str) -> None:
    space = view([name], [(1, 2, 4)], [[0], [1], [2]])
    fragment = Tunables(space, (0,), roles=False).fragments[name]
    assert type(fragment) is fragments.PowerOfTwoFragment


def test_what_is_not_in_the_space_is_no_configuration() -> None:
    space = view(["a", "b"], [(1, 2), ("x", None)], [[0, 0], [0, 1], [1, 0]])
    tunables = Tunables(space, (0, 0), roles=True)
    assert tunables.configuration(Config.from_dict({"a": 2, "b": "x"})) == (1, 0)
    assert [tunables.configuration(tunables.config(c)) for c in ((0, 1), (1, 0))] == [
        (0, 1),
        (1, 0),
    ]
    assert tunables.configuration(Config.from_dict({"a": 1})) == (0, 1)  # Helion drops a None
    for wrong in ({"a": 2, "b": None}, {"a": 3, "b": "x"}, {"a": [1], "b": "x"}, {"b": "x"}):
        assert tunables.configuration(Config.from_dict(wrong)) is None


def test_a_constrained_space_of_kernel_tuner(shared_spaces: Path) -> None:
    folder = shared_spaces / "kernel_tuner" / "convolution"
    recording, _ = import_recording(folder / "A100_T4.json.gz", t1=folder / "T1.json")
    task = dataclasses.replace(Task.build(recording), budget_s=1e9)
    found = resolve("helion:PatternSearch")
    assert isinstance(found, LibrarySearcher)
    trace = run_optimizer(found.build, task, 1, cpu_s=None)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert trace.best_ms <= np.quantile(task.costs_ms, 0.05)
