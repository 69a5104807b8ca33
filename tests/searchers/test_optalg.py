"""Files written for Kernel Tuner's OptAlg, unmodified, in the sandbox."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.imports import hidden_from_processes
from support.kernel_tuner_runs import RESTRICTION, KernelTuner, budgeted, constrained_recording

from llamea_gpu.errors import SearcherError
from llamea_gpu.runner import Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.preload import library_for
from llamea_gpu.searchers.registry import ProgramSearcher, resolve
from llamea_gpu.tasks import Task, Trace

pytest.importorskip("kernel_tuner")

# What models answer: a class on names that they never import, all neighbour methods, a repair.
ANSWER = '''
class BanditDescent(OptAlg):
    """Choose a neighbourhood by its success, descend, restart."""

    def __init__(self, budget=5000, patience=4, greed=0.5):
        self.patience = patience
        self.greed = greed

    def __call__(self, func, searchspace):
        methods = ["strictly-adjacent", "adjacent", "Hamming"]
        reward = {method: 1.0 for method in methods}
        self.f_opt, self.x_opt = np.inf, None
        while func.budget_spent_fraction < 1.0:
            x = list(searchspace.get_random_sample(1)[0])
            f, failures = func(x), 0
            while failures < self.patience:
                method = random.choices(methods, [reward[m] for m in methods])[0]
                neighbors = searchspace.get_neighbors(tuple(x), neighbor_method=method)
                if not neighbors:
                    break
                y = list(random.choice(neighbors))
                if random.random() > self.greed:
                    name = searchspace.param_names[i := np.random.randint(len(y))]
                    y[i] = random.choice(searchspace.tune_params[name])
                if not searchspace.is_param_config_valid(tuple(y)):
                    y = self.repair(y, searchspace)
                g = func(y)
                failures = 0 if g < f else failures + 1
                reward[method] += float(g < f)
                if g < f or math.exp(-(g - f) / 0.1) > random.random():
                    x, f = y, g
                if f < self.f_opt:
                    self.f_opt, self.x_opt = f, tuple(x)
        return self.x_opt, self.f_opt

    def repair(self, y, searchspace):
        for method in ["strictly-adjacent", "adjacent", "Hamming"]:
            neighbors = searchspace.get_neighbors_no_cache(tuple(y), neighbor_method=method)
            if len(neighbors) > 0:
                return list(random.choice(neighbors))
        return list(searchspace.get_random_sample(1)[0])
'''
# What BLADE writes before it, and what makes the file one that Kernel Tuner itself can load.
HEAD = """import math
import random

import numpy as np
from kernel_tuner.strategies.wrapper import OptAlg

"""
PLAIN = """
class Plain:
    def __init__(self):
        self.costfunc_kwargs = {"scaling": True, "snap": True}

    def __call__(self, func, searchspace):
        while True:
            func([random.random() for _ in searchspace.param_names])
"""
BODY = """
class C(OptAlg):
    def __call__(self, func, searchspace):
{body}
"""

Write = Callable[..., ProgramSearcher]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The searcher in a file with that text."""

    def write_file(text: str, suffix: str = "") -> ProgramSearcher:
        path = tmp_path / "theirs.py"
        path.write_text(text, encoding="utf-8")
        found = resolve(f"optalg:{path}{suffix}")
        assert isinstance(found, ProgramSearcher)
        return found

    return write_file


@pytest.fixture
def body(write: Write) -> Callable[[str], ProgramSearcher]:
    """A class whose ``__call__`` is that."""

    def of(text: str) -> ProgramSearcher:
        indented = "\n".join(" " * 8 + line for line in text.strip("\n").splitlines())
        return write(BODY.format(body=indented))

    return of


@pytest.fixture(scope="module")
def task() -> Task:
    return budgeted(constrained_recording(), 60)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with (
        hidden_from_processes("torch", tmp_path_factory.mktemp("hidden")),
        Runner(Sandbox.open(workers=1), workers=1) as opened,
    ):
        yield opened


Run = Callable[..., Trace]


@pytest.fixture
def run(runner: Runner, task: Task) -> Run:
    def run_one(searcher: ProgramSearcher, seed: int = 3) -> Trace:
        return runner.run(searcher, task, seed, limits=Limits(cpu_s=20.0))

    return run_one


# -- the same runs as at home -----------------------------------------------------------------


@pytest.mark.parametrize("text", [ANSWER, PLAIN], ids=["OptAlg", "scaled"])
def test_a_class_visits_what_it_visits_in_kernel_tuner(
    text: str, write: Write, run: Run, task: Task, tmp_path: Path
) -> None:
    from kernel_tuner.file_utils import import_class_from_file
    from kernel_tuner.strategies.wrapper import OptAlgWrapper

    searcher = write(HEAD + text)
    name = "BanditDescent" if text is ANSWER else "Plain"
    wrapper = OptAlgWrapper(import_class_from_file(tmp_path / "theirs.py", name)())
    home = KernelTuner(task.recording, [RESTRICTION], tmp_path)
    theirs = home.visits(wrapper, {}, budget_s=task.budget_s, seed=3)
    trace = run(searcher)
    assert (trace.outcome, trace.error) == ("budget", None)
    assert trace.rows.tolist() == theirs
    assert len(theirs) > 20


def test_an_answer_needs_no_imports(write: Write, run: Run) -> None:
    assert run(write(ANSWER)).rows.tolist() == run(write(HEAD + ANSWER)).rows.tolist()


def test_levels_give_the_same_run(write: Write, run: Run, task: Task) -> None:
    searcher = write(ANSWER)
    with Runner(Sandbox.open(workers=1, level=1), workers=1) as other:
        assert other.run(searcher, task, 3).rows.tolist() == run(searcher).rows.tolist()


@pytest.mark.parametrize(
    ("strategy", "file", "name"),
    [
        ("hybrid_vndx", "gen_hybrid_vndx.py", ":HybridVNDX"),
        ("adaptive_tabu_greywolf", "gen_adaptive_tabu_greywolf.py", ":AdaptiveTabuGreyWolf"),
        ("adaptive_tabu_greywolf", "gen_adaptive_tabu_greywolf.py", ""),
    ],
)
def test_kernel_tuners_own_generated_strategies_run_from_their_files(
    strategy: str, file: str, name: str, run: Run, runner: Runner, task: Task
) -> None:
    import kernel_tuner.strategies

    path = Path(kernel_tuner.strategies.__file__).parent / file
    found = run(resolve(f"optalg:{path}{name}?budget=90"))
    library = runner.run(resolve(f"kernel_tuner:{strategy}?budget=90"), task, 3)
    assert found.error is None
    assert found.rows.tolist() == library.rows.tolist()
    assert found.rows.size > 20


def test_a_class_with_tune_is_a_strategy_too(write: Write, run: Run) -> None:
    text = """
class Own:
    def tune(self, searchspace, runner, tuning_options):
        func = CostFunc(searchspace, tuning_options, runner)
        try:
            func.eval_all(searchspace.list)
        except util.StopCriterionReached:
            return func.results
"""
    trace = run(write(text, ":Own"))
    assert (trace.outcome, trace.error) == ("budget", None)
    assert trace.rows.tolist() == list(range(trace.rows.size))


# -- the text ---------------------------------------------------------------------------------


def test_the_file_stays_as_it_is(write: Write) -> None:
    searcher = write(ANSWER)
    assert searcher.program.source.startswith(ANSWER)
    assert searcher.program.source.count("\n") - ANSWER.count("\n") < 6
    assert searcher.program.settings == {"budget": 5000, "patience": 4, "greed": 0.5}


def test_hyperparameters_can_be_set(write: Write, run: Run) -> None:
    searcher = write(ANSWER, ":BanditDescent?patience=1&greed=1")
    assert searcher.program.settings == {"budget": 5000, "patience": 1, "greed": 1.0}
    assert run(searcher).rows.tolist() != run(write(ANSWER)).rows.tolist()


def test_an_error_names_the_files_own_line(
    body: Callable[[str], ProgramSearcher], run: Run
) -> None:
    searcher = body("x = 1\nreturn undefined_name")
    line = (
        searcher.program.source[: searcher.program.source.index("undefined_name")].count("\n") + 1
    )
    trace = run(searcher)
    assert trace.outcome == "error"
    assert f"line {line}, in __call__\n    return undefined_name" in str(trace.error)


def test_only_such_files_get_kernel_tuner(write: Write) -> None:
    assert library_for(write(ANSWER).program.source) == "kernel_tuner"
    assert library_for("import numpy  # kernel_tuner") == "numpy"


@pytest.mark.parametrize(
    ("text", "suffix", "problem"),
    [
        (ANSWER, "?step=2", "no setting 'step': there are budget, patience, greed"),
        (ANSWER, ":Other", "classes in it: BanditDescent"),
        ("x = 1", "", "must hold one class with a __call__ method"),
        ("class :", "", "must be Python source"),
    ],
)
def test_wrong_specs_say_what_to_do(write: Write, text: str, suffix: str, problem: str) -> None:
    with pytest.raises(SearcherError, match=problem):
        write(text, suffix)


def test_a_name_is_no_file() -> None:
    with pytest.raises(SearcherError, match=r"must be given as FILE\.py\[:Class\], but got 'tabu'"):
        resolve("optalg:tabu")


def test_without_kernel_tuner_its_extra_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(SearcherError, match=r"pip install 'llamea-gpu\[kernel-tuner\]'"):
        write(ANSWER)


# -- what its code may rely on, and what it may not -------------------------------------------


def test_the_search_space_is_all_there(body: Callable[[str], ProgramSearcher], run: Run) -> None:
    searcher = body(
        """
space = searchspace
config = space.list[5]
assert space.size == len(space.list) == 342 and config in space.get_list_dict()
assert space.get_param_config_from_param_indices(space.get_param_indices(config)) == config
for method in ("strictly-adjacent", "adjacent", "Hamming", "Hamming-adjacent",
               "closest-param-indices"):
    near = space.get_neighbors(config, neighbor_method=method)
    assert near and config not in near
    assert space.get_neighbors_no_cache(config, method) == near
    assert space.get_random_neighbor(config, neighbor_method=method) in near
assert len(set(space.get_LHS_sample(9))) == 9 and len(space.get_distributed_random_sample(9)) == 9
assert space.tune_params["mode"] == ["flat", "deep", "wide"]
invalid = (256, 8, 0.5, "flat", 1)
assert not space.is_param_config_valid(invalid) and space.get_neighbors(invalid, "Hamming")
assert func.budget_spent_fraction == 0.0 and func(invalid) == sys.float_info.max
assert func.budget_spent_fraction == 0.0
f = func(list(config))
assert 0 < func.budget_spent_fraction < 0.1 and func.get_num_unique_results() == 1
assert func.results[-1]["time"] == f and func.results[-1]["mode"] == config[3]
""".replace("sys.", "util.sys.")
    )
    trace = run(searcher)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert (trace.asks, trace.rows.tolist()) == (1, [5])


def test_swallowing_the_end_does_not_go_on(
    body: Callable[[str], ProgramSearcher], run: Run, task: Task
) -> None:
    searcher = body(
        """
while True:
    try:
        func(searchspace.get_random_sample(1)[0])
    except Exception:
        pass
"""
    )
    trace = run(searcher)
    assert (trace.outcome, trace.error) == ("budget", None)
    assert trace.elapsed_s[-1] >= task.budget_s > trace.elapsed_s[-2]


@pytest.mark.parametrize(
    "attempt",
    [
        "open(util.__file__)",
        "Searchspace.__init__.__globals__['Path'](util.__file__).read_text()",
        "import torch",
        "import llamea_gpu.tasks",
        "os.listdir('/')",
    ],
)
def test_the_sandbox_is_as_closed_as_ever(
    attempt: str, body: Callable[[str], ProgramSearcher], run: Run
) -> None:
    trace = run(body(attempt))
    assert trace.outcome == "error"
    assert any(word in str(trace.error) for word in ("Error: [Errno", "ModuleNotFoundError"))


def test_costs_are_not_within_reach(body: Callable[[str], ProgramSearcher], run: Run) -> None:
    searcher = body(
        """
assert func.tuning_options.cache == {} and not func.tuning_options.cachefile
import gc
found = [o for o in gc.get_objects() if type(o).__name__ in ("Recording", "Task", "Evaluator")]
assert not found, found
"""
    )
    assert run(searcher).error is None
