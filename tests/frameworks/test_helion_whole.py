"""Clouds that ship, bound again without a GPU: the real space, exactly, and Helion's own search."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import SpaceError
from llamea_gpu.frameworks.helion.normal_form import NormalForm, NoTablesError
from llamea_gpu.modelled import WholeTask
from llamea_gpu.models.model import Outcome
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_cloud
from llamea_gpu.spaces.cloud import Cloud

pytest.importorskip("helion")
from llamea_gpu.frameworks.helion import whole
from llamea_gpu.frameworks.helion.whole import BoundKernel, bind

NAME = "clouds/helion/rope-4x32x4096x128-h200"


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    return load_cloud(NAME)


@pytest.fixture(scope="module")
def kernel(cloud: Cloud) -> BoundKernel:
    return bind(cloud)


def test_what_was_measured_is_normal_here(cloud: Cloud, kernel: BoundKernel) -> None:
    with kernel.pretended():
        space = kernel.space(np.random.default_rng(0), cloud.starts, cloud.default)
        for row in range(0, len(cloud), 20):
            assert space.canonical(cloud.configuration(row)) == cloud.configuration(row)
        assert space.sample(len(cloud.starts)) == list(cloud.starts)


def test_a_parameter_that_helion_had_not_yet_is_off() -> None:
    older = load_cloud("clouds/helion/cross_entropy-8192x50257-h200")
    bound = bind(older)
    assert bound.template.names == older.names
    assert "reduction_fusion" not in older.names
    with bound.pretended():
        config = bound.space(np.random.default_rng(0), older.starts, older.default)
        assert config.canonical(older.starts[0]) == older.starts[0]


def test_the_tables_say_what_helion_says(cloud: Cloud, kernel: BoundKernel) -> None:
    rng = np.random.default_rng(1)
    space = kernel.template
    assert space.form is not None
    with kernel.pretended():
        for _ in range(600):
            config = cloud.configurations[rng.integers(len(cloud))].copy()
            for place in rng.integers(0, len(config), rng.integers(1, 6)):
                config[place] = rng.integers(space.cardinalities[place])
            key = tuple(config.tolist())
            assert space.form.of(key) == space.asked(key)


def test_runs_do_not_show_in_one_another(cloud: Cloud, kernel: BoundKernel) -> None:
    with kernel.pretended():

        def begun() -> list[tuple[int, ...]]:
            space = kernel.space(np.random.default_rng(2), cloud.starts, cloud.default)
            return [*space.sample(6), *space.neighbors(cloud.starts[0])]

        first = begun()
        disturbing = kernel.space(np.random.default_rng(3), cloud.starts, cloud.default)
        disturbing.leaders = [cloud.configuration(100)]
        disturbing.sample(30)
        assert begun() == first


def test_another_helion_is_told_by_the_parameter_that_differs(cloud: Cloud) -> None:
    values = list(cloud.values)
    values[1] = (*values[1], 8192)
    with pytest.raises(SpaceError, match=r"values of block_sizes\[1\]"):
        bind(replace(cloud, values=tuple(values)))
    with pytest.raises(SpaceError, match=r"parameter 0 is other, and here block_sizes\[0\]"):
        bind(replace(cloud, names=("other", *cloud.names[1:])))
    with pytest.raises(SpaceError, match="must ship or lie"):
        bind(replace(cloud, script="../../evil"))
    info = replace(cloud.info, device="AMD Instinct MI300X")
    with pytest.raises(SpaceError, match="whose facts are known"):
        bind(replace(cloud, info=info))


class Flat:
    """In the place of a model: everything takes the same."""

    digest, best_ms = "flat", 1.0

    def outcome(self, config: tuple[int, ...]) -> Outcome:
        return Outcome(0, 1.0 + sum(config) / 100, 1.0, 0.05, measured=False)

    def outcomes(self, configs: list[tuple[int, ...]]) -> list[Outcome]:
        return [self.outcome(config) for config in configs]


def test_helions_own_search_runs_on_the_real_space(cloud: Cloud, kernel: BoundKernel) -> None:
    del kernel
    task = WholeTask(cloud, Flat(), ParallelClock(15), 25.0)  # type: ignore[arg-type]
    searcher = resolve("helion:PatternSearch?effort=quick")
    runs = [run_optimizer(searcher.build, task, seed, cpu_s=None) for seed in (1, 1, 2)]
    assert {run.outcome for run in runs} <= {"budget", "finished"}, runs[0].error
    first, again, other = (run.configurations.tolist() for run in runs)  # type: ignore[union-attr]
    assert first == again != other
    assert set(cloud.starts) <= {tuple(config) for config in first}
    assert runs[0].batch is not None
    # Its own first batch, as live: the starts are not measured before it.
    assert np.count_nonzero(runs[0].batch == 0) > len(cloud.starts)


def test_a_dependency_that_was_missed_is_found_by_an_audit() -> None:
    rare = (4, 3, 4, 3, 4, 3, 4, 3)

    def ask(key: tuple[int, ...]) -> tuple[int, ...]:
        first = 0 if key[1:] == rare[1:] or key[2] == 1 else key[0]
        return (first, *key[1:])

    form = NormalForm.learn(ask, (5,) * 8, [(0,) * 8])
    assert form is not None
    assert form.of((2, 0, 1, 0, 0, 0, 0, 0)) == (0, 0, 1, 0, 0, 0, 0, 0)
    assert form.of(rare) == rare, "too rare to be found by asking around"
    assert [form.of(rare) for _ in range(300)][-1] == ask(rare)
    assert form.of((2, *rare[1:])) == ask((2, *rare[1:]))


def test_what_was_learnt_is_recalled_and_what_is_damaged_is_not() -> None:
    asked: list[tuple[int, ...]] = []

    def ask(key: tuple[int, ...]) -> tuple[int, ...]:
        asked.append(key)
        return (0 if key[2] == 1 else key[0], *key[1:])

    learnt = NormalForm.learn(ask, (5,) * 4, [(0,) * 4])
    assert learnt is not None
    taken = len(asked)
    form = NormalForm.recalled(ask, (5,) * 4, learnt.answers)
    assert len(asked) - taken < taken / 50
    for key in itertools.product(range(5), repeat=4):
        assert form.of(key) == ask(key)
    for damaged in (learnt.answers[0], learnt.answers[:, :, :3]):
        with pytest.raises(NoTablesError):
            NormalForm.recalled(ask, (5,) * 4, damaged)


def test_a_kernel_is_bound_with_what_an_earlier_process_learnt(
    cloud: Cloud, kernel: BoundKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_CACHE", str(tmp_path))
    space = copy.copy(kernel.template)
    facts = ("a script", "a shape", "h200")
    with kernel.pretended():
        learnt = whole._form(space, facts)
        (file,) = tmp_path.iterdir()
        monkeypatch.setattr(NormalForm, "learn", lambda *_: pytest.fail("it is known"))
        recalled = whole._form(space, facts)
        assert learnt is not None
        assert recalled is not None
        assert recalled._tables == learnt._tables
        monkeypatch.setattr(NormalForm, "learn", lambda *_: None)
        file.write_bytes(file.read_bytes()[:1000])  # cut short: it is learnt anew
        assert whole._form(space, facts) is None


def test_nothing_is_learnt_where_configurations_are_refused() -> None:
    assert NormalForm.learn(lambda key: None if key[0] else key, (2, 2), [(0, 0)]) is None
