"""The same seed visits the same configurations in the sandbox, live, and in the exported file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.recordings import small_recording
from support.tuning import Simulation, counted_task, load_module
from threadpoolctl import threadpool_limits

from llamea_gpu.export.kernel_tuner import export_source
from llamea_gpu.live.kernel_tuner import strategy
from llamea_gpu.programs.shipped import generated, shipped
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve, resolve_program
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import Recording

pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")

BEST = str(resource_dir("generated_optimizers") / "runs" / "h200-first" / "best.py")
SPECS = (*shipped(), BEST)
# On a real recording the promoted ones, and what moves by neighbours, in vectors, and submits.
VISITING = (
    *generated(),
    *("iterated_local_search", "differential_evolution", "steady_state_genetic_algorithm"),
)
CASES = [
    *(("small", spec) for spec in SPECS),
    *(("convolution", spec) for spec in VISITING),
]
EVALUATIONS = 60


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def t4_recording(shared_spaces: Path) -> Recording:
    """Failures, constraints, and parameters in another order than the alphabet's."""
    folder = shared_spaces / "kernel_tuner" / "convolution"
    recording, _ = import_recording(folder / "MI250X_T4.json.gz", t1=folder / "T1.json")
    return recording


@pytest.fixture(scope="module")
def simulation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Simulation:
    """On the recording that the test names."""
    if request.param == "small":
        recording = small_recording()
    else:
        recording = request.getfixturevalue("t4_recording")
    return Simulation(recording, tmp_path_factory.mktemp("caches"))


@pytest.mark.parametrize(
    ("simulation", "spec"), CASES, indirect=["simulation"], ids=lambda each: Path(each).stem
)
def test_simulator_strategy_and_export_visit_the_same(
    spec: str, simulation: Simulation, runner: Runner, tmp_path: Path
) -> None:
    task = counted_task(simulation.recording, EVALUATIONS)
    sandboxed = runner.run(resolve(spec), task, seed=5)
    path = tmp_path / "exported.py"
    path.write_text(export_source(resolve_program(spec)), encoding="utf-8")
    exported = getattr(load_module(path), f"{resolve_program(spec).program.class_name}Strategy")
    with threadpool_limits(1):  # as in the sandbox: sums depend on the number of threads
        live = simulation.rows(simulation.tune(strategy(spec, seed=5), EVALUATIONS))
        alone = simulation.rows(simulation.tune(exported(seed=5), EVALUATIONS))
    assert sandboxed.outcome == "budget"
    assert live == sandboxed.rows.tolist()
    assert alone == live


@pytest.mark.parametrize("simulation", ["small"], indirect=True)
def test_another_seed_visits_others(simulation: Simulation) -> None:
    first, second = (
        simulation.rows(simulation.tune(strategy("genetic_algorithm", seed=seed), 30))
        for seed in (5, 6)
    )
    assert first != second


def test_unseeded_and_global_generators_depend_on_the_seed_too(
    runner: Runner, tmp_path: Path
) -> None:
    source = tmp_path / "careless.py"
    source.write_text(
        "import random\n"
        "import numpy as np\n"
        "from scipy.stats import qmc\n"
        "class Careless:\n"
        "    def __call__(self, evaluate, space, rng):\n"
        "        pool = space.pool(10**6)\n"
        "        while True:\n"
        "            drawn = random.random(), np.random.random(), qmc.Sobol(1).random()[0, 0]\n"
        "            for x in drawn:\n"
        "                evaluate([tuple(pool[int(x * len(pool))])])\n"
    )
    simulation = Simulation(small_recording(), tmp_path)
    sandboxed = runner.run(resolve(str(source)), counted_task(simulation.recording, 40), seed=5)
    live = simulation.tune(strategy(str(source), seed=5), 40)
    assert simulation.rows(live) == sandboxed.rows.tolist()
