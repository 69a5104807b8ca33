"""A cluster's pipeline that is one of this machine, for what does not depend on Ray."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llamea_gpu.cluster.engine import EngineSpec
from llamea_gpu.cluster.pipeline import Gpus
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Pipeline
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import GPUS
from llamea_gpu.live import TuneProgress, TuneSettings, TuningResult
from llamea_gpu.live.helion import cluster
from llamea_gpu.live.helion.tuning import tune_helion_script
from llamea_gpu.resources import resource_dir
from support.formula_timing import formula_stages_on_node
from support.waiting import GENEROUS_S

_T = TypeVar("_T")
ROW_SUM = resource_dir("tuning_spaces") / "kernels" / "helion" / "row_sum.py"


class OneMachine(Pipeline):
    """The engine of one GPU, here; made as a `ClusterPipeline` is."""

    def __init__(self, spec: EngineSpec, gpus: Gpus, compilers: int) -> None:
        assert (gpus.count, compilers) == (2, 1)
        self._temporary = tempfile.TemporaryDirectory()
        folder = Path(self._temporary.name)
        super().__init__(*spec.build(folder), folder, spec.limits, **spec.options)

    def __exit__(self, *ended: object) -> None:
        super().__exit__(*ended)
        self._temporary.cleanup()

    def poll(self) -> None:
        self._hand_out()

    def on_one(self, work: Callable[[Pipeline], _T], limit_s: float) -> _T:
        assert limit_s > 0
        self.forget()
        return work(self)


def measure_by_formula(
    patch: pytest.MonkeyPatch,
    folder: Path,
    faults: Mapping[int, str] | None = None,
    slow_s: float = 0.0,
) -> None:
    """Have a cluster's engines do so, and a node's GPU be one that is known."""

    def unheld(
        build: Any, limits: Limits, preload: Sequence[str], *, exclusive: bool, **others: Any
    ) -> EngineSpec:
        assert (preload, exclusive) == (PRELOAD, True)
        return EngineSpec(build, Limits(limits.compile_s, start_s=GENEROUS_S), **others)

    patch.setattr(cluster, "EngineSpec", unheld)
    patch.setattr(cluster, "run_on", lambda gpus, *_: GPUS[gpus.kind])
    stages = partial(formula_stages_on_node, folder, faults or {}, slow_s)
    patch.setattr(cluster, "stages_on_node", stages)


def tuned(
    address: str,
    searcher: str,
    journal: Path,
    progress: Callable[[TuneProgress], None] = lambda _: None,
    script: Path = ROW_SUM,
    **options: Any,
) -> TuningResult:
    """What tuning a small kernel on that cluster comes to."""
    settings = TuneSettings(
        shape="small", effort="quick", cluster=address, journal=journal, **options
    )
    return tune_helion_script(script, searcher, settings, progress)


# What it asks for does not depend on times, so that any two runs measure the same.
_AROUND = '''
class Around:
    """Neighbours of the first start, and theirs."""

    def __init__(self, ahead=6):
        self.ahead = ahead

    def __call__(self, evaluate, space, rng):
        near = space.neighbors(space.starts[0], "adjacent")
        for config in near + [far for one in near for far in space.neighbors(one, "adjacent")]:
            evaluate.submit([config])
            if evaluate.pending >= self.ahead:
                evaluate.wait()
        while evaluate.wait():
            pass
'''


def around_in(folder: Path) -> str:
    """The spec of a searcher that always measures the same."""
    path = folder / "around.py"
    path.write_text(_AROUND)
    return f"{path}:Around"
