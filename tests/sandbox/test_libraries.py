"""What a candidate may import works in the sandbox, where no file can be opened."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sandbox.candidates import candidate

from llamea_gpu.errors import AnswerError
from llamea_gpu.programs import admit
from llamea_gpu.programs.screening import ALLOWED_MODULES
from llamea_gpu.resources import resource_dir
from llamea_gpu.sandbox import launch, preload
from llamea_gpu.sandbox.levels import Ingredients
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.process import ZygoteProcess
from llamea_gpu.tasks import Task, Trace

Run = Callable[..., Trace]

_DATA = """
X = space.encode(space.pool(100))
y = np.sin(7 * X[:, 0]) + X[:, 1]
label = (y > np.median(y)).astype(int)
def f(x): return float(np.sum((x - 0.3) ** 2))
"""

_USES = {
    "scipy local": """
from scipy import optimize
for method in ("Nelder-Mead", "Powell", "CG", "BFGS", "L-BFGS-B", "TNC", "COBYLA", "SLSQP"):
    assert f(optimize.minimize(f, np.full(3, 0.6), method=method).x) < 1e-3, method
""",
    "scipy global": """
from scipy import optimize
box = [(0, 1)] * 3
optimize.differential_evolution(f, box, seed=1, maxiter=3)
optimize.dual_annealing(f, box, seed=1, maxiter=3)
optimize.basinhopping(f, np.full(3, 0.6), niter=2)
optimize.direct(f, box)
optimize.shgo(f, box)
""",
    "scipy linear": """
from scipy import optimize
assert optimize.linprog([1, -1], bounds=[(0, 1)] * 2).x.tolist() == [0, 1]
optimize.milp(np.array([1.0]), integrality=1, bounds=optimize.Bounds(0, 3))
optimize.linear_sum_assignment(X @ X.T)
optimize.nnls(X, y)
optimize.curve_fit(lambda x, a, b: a * x + b, X[:, 0], y)
""",
    "scipy sampling": """
from scipy.stats import qmc
for sampler in (qmc.Sobol, qmc.Halton, qmc.LatinHypercube):
    assert sampler(5, seed=1).random(16).shape == (16, 5)
""",
    "scipy statistics": """
from scipy import stats
stats.spearmanr(X[:, 0], y), stats.mannwhitneyu(X[:, 0], y), stats.kstest(y, "norm")
stats.gaussian_kde(X.T)(X.T), stats.norm.cdf(y), stats.beta.rvs(1, 2, random_state=1)
""",
    "scipy geometry": """
from scipy import cluster, interpolate, linalg, ndimage, signal, spatial
spatial.cKDTree(X).query(X, 3), spatial.distance.cdist(X, X, "hamming")
cluster.hierarchy.linkage(X), cluster.vq.kmeans2(X, 3, seed=1)
interpolate.RBFInterpolator(X, y, smoothing=1)(X), linalg.expm(np.eye(3))
linalg.fractional_matrix_power(np.eye(3), 0.5), ndimage.gaussian_filter(y, 1)
signal.savgol_filter(y, 5, 2)
""",
    "sklearn Gaussian process": """
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
kernel = kernels.ConstantKernel() * kernels.Matern(nu=2.5) + kernels.WhiteKernel()
model = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=1).fit(X, y)
mean, deviation = model.predict(X, return_std=True)
assert np.corrcoef(mean, y)[0, 1] > 0.9
repr(model)
""",
    "sklearn trees": """
from sklearn import ensemble, tree
for cls in (
    ensemble.RandomForestRegressor, ensemble.ExtraTreesRegressor,
    ensemble.GradientBoostingRegressor, ensemble.HistGradientBoostingRegressor,
    ensemble.AdaBoostRegressor, tree.DecisionTreeRegressor,
):
    assert np.isfinite(cls(random_state=1).fit(X, y).predict(X)).all()
""",
    "sklearn linear": """
from sklearn import kernel_ridge, linear_model, neural_network, pipeline, preprocessing, svm
for model in (
    linear_model.Ridge(), linear_model.LassoCV(), linear_model.BayesianRidge(), svm.SVR(),
    kernel_ridge.KernelRidge(), neural_network.MLPRegressor(max_iter=2000, random_state=1),
    pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
):
    model.fit(X, y).predict(X)
linear_model.LogisticRegression().fit(X, label), svm.SVC().fit(X, label)
""",
    "sklearn clusters": """
from sklearn import cluster, decomposition, mixture, neighbors
for cls in (cluster.KMeans, cluster.DBSCAN, cluster.AgglomerativeClustering, cluster.Birch):
    cls().fit(X)
decomposition.PCA(2).fit(X), mixture.GaussianMixture(2, random_state=1).fit(X).sample(3)
neighbors.KNeighborsRegressor(3).fit(X, y).predict(X), neighbors.KernelDensity().fit(X)
""",
    "sklearn selection": """
from sklearn import linear_model, model_selection
model_selection.cross_val_score(linear_model.Ridge(), X, y)
model_selection.GridSearchCV(linear_model.Ridge(), {"alpha": [1, 2]}).fit(X, y)
""",
    "numpy": """
np.fft.fft(y), np.polynomial.Polynomial.fit(X[:, 0], y, 2), np.ma.array(y), np.char.upper("a")
np.linalg.lstsq(X, y, rcond=None), np.einsum("ij,kj->ik", X, X), np.histogram(y), str(X)
""",
    "dataclasses": """
import dataclasses
@dataclasses.dataclass
class Point:
    x: int = 1
assert Point(2) == Point(2) and "Point(x=2)" in repr(Point(2))
""",
    "locks and clocks": """
import queue, threading
lock, condition = threading.Lock(), threading.Condition()
assert lock.acquire() and not lock.acquire(timeout=0.001)
with condition:
    assert not condition.wait(0.001)
try: queue.Queue().get(timeout=0.001)
except queue.Empty: pass
for clock in (time.time, time.monotonic, time.process_time, time.thread_time): assert clock() > 0
""",
    "attributes": """
import math
assert not hasattr(math, "nothing") and not hasattr(np, "nothing")
""",
    "text": """
'ä'.encode('latin-1'), 'x'.encode('utf-16'), 'a'.encode('idna'), '%.3f' % 0.5, f'{y[0]:.2e}'
""",
}


@pytest.mark.parametrize("what", _USES)
def test_the_libraries_work(run: Run, what: str) -> None:
    trace = run("import warnings\nwarnings.simplefilter('ignore')\n" + _DATA + _USES[what])
    assert (trace.outcome, trace.error) == ("finished", None)


@pytest.mark.parametrize("name", sorted({*ALLOWED_MODULES, *preload.LIBRARIES}))
def test_what_admission_allows_can_be_imported(run: Run, name: str) -> None:
    trace = run(f"import {name}" if name != "__future__" else "import abc")
    assert (trace.outcome, trace.error) == ("finished", None)


def _public_modules() -> Iterator[str]:
    """All that numpy, scipy and scikit-learn ship under public names and this Python imports."""
    for root in preload.LIBRARIES:
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}.", onerror=lambda _: None):
            name = found.name
            parts = name.split(".")
            if not {"tests", "conftest", "setup"} & set(parts) and not name.count("._"):
                yield name


def _is_admitted(name: str) -> bool:
    source = f"import {name}\nclass C:\n    def __call__(self, evaluate, space, rng): ...\n"
    try:
        admit(source)
    except AnswerError:
        return False
    return True


@pytest.mark.parametrize("library", preload.LIBRARIES)
def test_every_module_that_admission_lets_pass_is_there(run: Run, library: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [n for n in _public_modules() if n.split(".")[0] == library and _is_admitted(n)]
        names = [name for name in names if _is_importable(name)]
    assert len(names) > 20
    body = f"""
import importlib
missing = []
for name in {names}:
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
assert not missing, missing
"""
    trace = run(body)
    assert (trace.outcome, trace.error) == ("finished", None)


def _is_importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # a module for another system, or for a package that is not installed
        return False
    return True


@pytest.mark.parametrize("name", ["torch", "pandas", "sqlite3", "llamea_gpu.tasks", "nothing"])
def test_what_is_not_loaded_is_not_there(run: Run, name: str) -> None:
    assert "ModuleNotFoundError" in (run(f"import {name}").error or "")


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("import numpy", "numpy"),
        ("from scipy.stats import norm", "scipy"),
        ("import numpy, sklearn.svm", "sklearn"),
        ("from scipy import stats\nfrom sklearn import svm", "sklearn"),
    ],
)
def test_a_candidate_gets_the_smallest_set_that_has_its_imports(source: str, library: str) -> None:
    assert preload.library_for(source) == library


def test_the_zygotes_half_never_loads_the_hosts() -> None:
    code = (
        "import sys, llamea_gpu.sandbox.zygote\n"
        "zygotes = ('errors', 'seeding', 'spaces', 'sandbox')\n"
        "print([n for n in sys.modules if n.startswith('llamea_gpu.') and n.split('.')[1] not in"
        " zygotes or n.endswith(('.pool', '.serving', '.recording'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("library", preload.LIBRARIES)
def test_a_zygote_has_one_thread_and_no_other_package(
    library: str, zygote_of: Callable[[int, str], ZygoteProcess]
) -> None:
    assert len(os.listdir(f"/proc/{zygote_of(2, library).pid}/task")) == 1


@pytest.mark.parametrize("level", [3, 2, 1])
def test_the_levels_load_the_same_modules(
    level: int, sandbox_of: Callable[[int], Sandbox], task: Task
) -> None:
    body = """
roots = ("numpy", "scipy", "sklearn", "joblib", "pandas", "pyarrow")
names = sorted(name for name in sys.modules if name.split(".")[0] in roots)
raise ValueError(f"{len(names)} {hash(tuple(names))}")
"""
    first, here = (sandbox_of(n).run(candidate(body, task)) for n in (2, level))
    assert int((first.error or "").split()[-2]) > 1000
    assert first.error == here.error


# -- what bubblewrap shows --------------------------------------------------------------------


def test_no_recording_is_in_a_folder_that_the_zygote_is_shown() -> None:
    visible = launch.find_installation().visible
    recordings = resource_dir("tuning_spaces").resolve()
    assert visible
    for path in visible:
        assert not recordings.is_relative_to(path.resolve())
        assert not path.resolve().is_relative_to(recordings)


def test_the_namespaces_hold_code_and_nothing_else() -> None:
    ingredients = Ingredients.find(launch.find_installation())
    if ingredients.bubblewrap is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("bubblewrap must be installed")
        pytest.skip("bubblewrap is not installed")
    command = launch.bubblewrap_command(ingredients.bubblewrap, ingredients.installation, 0)
    listing = (
        "import json, os\n"
        "files = [f for _, _, names in os.walk('/') for f in names]\n"
        "data = [f for f in files if f.endswith(('.parquet', '.jsonl'))]\n"
        "installed = [os.listdir(d) for d, _, _ in os.walk('/') if d.endswith('-packages')]\n"
        "print(json.dumps([os.listdir('/'), len(files), data, sum(installed, [])]))"
    )
    program = command[: command.index("--") + 1]
    python = str(ingredients.installation.interpreter)
    done = subprocess.run(
        [*program, python, "-sS", "-c", listing], capture_output=True, text=True, check=True
    )
    top, count, data, installed = json.loads(done.stdout)
    code = (*ingredients.installation.visible, Path(python), Path(sysconfig.get_path("stdlib")))
    here = {path.parts[1] for path in code}
    assert set(top) <= {"usr", "lib", "lib64", "etc"} | here
    assert count > 1000
    assert data == []
    named = (
        *(*preload.LIBRARIES, "scikit", "joblib", "threadpoolctl", "narwhals", "llamea_gpu"),
        *preload.KERNEL_TUNER_NEEDS,
    )
    assert not [name for name in installed if not name.startswith(named)]


def test_the_zygotes_environment_has_no_secret_of_the_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    environment = launch.environment()
    assert environment.pop("LD_LIBRARY_PATH") == "/opt/python/lib"
    for name in launch._ARITHMETIC:
        environment.pop(name, None)
    assert all(
        name.startswith(("LC_", "TZ", "PYTHON", "JOBLIB_")) or name.endswith("_NUM_THREADS")
        for name in environment
    )
    assert all(v == "1" for n, v in environment.items() if n.endswith("_NUM_THREADS"))


@pytest.mark.parametrize("cores", ["Haswell", "Nehalem"])
def test_sums_are_those_of_this_process_to_the_last_digit(
    task: Task, monkeypatch: pytest.MonkeyPatch, cores: str
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", cores)
    body = """
import numpy as np
matrix = np.random.default_rng(0).random((20, 20))
raise ValueError(f"all bits: {np.linalg.inv(matrix).view(np.uint64).sum()}")
"""
    with Sandbox.open(1) as sandbox:
        found = sandbox.submit(candidate(body, task)).result()
    here = subprocess.run(
        [sys.executable, "-c", body],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    last_line = here.stderr.splitlines()[-1]
    assert "ValueError: all bits: " in last_line
    assert last_line in (found.error or "")
