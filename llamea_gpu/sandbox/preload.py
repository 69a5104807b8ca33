"""What the zygote imports before it forks: all that a candidate can import, for it opens no file.

A child has no file access at any level, so a module that is not loaded here does not exist for it.
A zygote loads one of four sets, the smallest that a candidate's source needs: every shared library
in memory makes each fork slower (1.5 ms with numpy, 5 ms with scipy, 9 ms with scikit-learn). The
fourth, Kernel Tuner on top of the others, is for its OptAlg classes alone.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from typing import Any

# Pure modules of the standard library, and codecs that text handling looks up by name.
_STANDARD = """
abc array bisect calendar cmath collections collections.abc colorsys contextlib contextvars copy
copyreg csv dataclasses decimal difflib enum fractions functools graphlib hashlib heapq hmac
inspect io itertools json keyword logging math numbers operator pprint queue random re reprlib
secrets statistics string struct textwrap threading time timeit traceback types typing unicodedata
uuid warnings weakref zlib
encodings.ascii encodings.idna encodings.latin_1 encodings.utf_8 encodings.utf_16 encodings.utf_32
"""
_NUMPY = """
numpy numpy.char numpy.dtypes numpy.exceptions numpy.fft numpy.linalg numpy.ma numpy.polynomial
numpy.random numpy.rec numpy.strings
numpy.lib.recfunctions numpy.lib.stride_tricks numpy.ma.mrecords numpy.typing
"""
_SCIPY = """
scipy scipy.cluster.hierarchy scipy.cluster.vq scipy.constants scipy.differentiate scipy.fft
scipy.fftpack scipy.integrate scipy.interpolate scipy.linalg scipy.linalg.interpolative
scipy.ndimage scipy.odr scipy.optimize scipy.optimize.elementwise scipy.signal scipy.signal.windows
scipy.sparse scipy.sparse.csgraph scipy.sparse.linalg scipy.spatial scipy.spatial.distance
scipy.spatial.transform scipy.special scipy.stats scipy.stats.contingency
scipy.stats.distributions scipy.stats.mstats scipy.stats.qmc scipy.stats.sampling
scipy.linalg._matfuncs_inv_ssq scipy.sparse._spfuncs multiprocessing
"""
_SKLEARN = """
sklearn sklearn.base sklearn.calibration sklearn.cluster sklearn.compose sklearn.covariance
sklearn.cross_decomposition sklearn.decomposition sklearn.discriminant_analysis sklearn.dummy
sklearn.ensemble sklearn.exceptions sklearn.experimental.enable_halving_search_cv
sklearn.experimental.enable_iterative_imputer sklearn.feature_extraction sklearn.feature_selection
sklearn.gaussian_process sklearn.gaussian_process.kernels sklearn.impute sklearn.inspection
sklearn.isotonic sklearn.kernel_approximation sklearn.kernel_ridge sklearn.linear_model
sklearn.manifold sklearn.metrics sklearn.metrics.pairwise sklearn.mixture sklearn.model_selection
sklearn.multiclass sklearn.multioutput sklearn.naive_bayes sklearn.neighbors sklearn.neural_network
sklearn.pipeline sklearn.preprocessing sklearn.random_projection sklearn.semi_supervised
sklearn.svm sklearn.tree sklearn.utils sklearn.utils.extmath sklearn.utils.validation
sklearn.utils._pprint
"""

# What a file written for Kernel Tuner's OptAlg can import. All of it may be missing.
_KERNEL_TUNER = """
kernel_tuner kernel_tuner.core kernel_tuner.interface kernel_tuner.searchspace kernel_tuner.util
kernel_tuner.strategies.basinhopping kernel_tuner.strategies.bayes_opt
kernel_tuner.strategies.common kernel_tuner.strategies.diff_evo
kernel_tuner.strategies.dual_annealing kernel_tuner.strategies.firefly_algorithm
kernel_tuner.strategies.gen_adaptive_tabu_greywolf kernel_tuner.strategies.gen_hybrid_vndx
kernel_tuner.strategies.genetic_algorithm kernel_tuner.strategies.greedy_ils
kernel_tuner.strategies.greedy_mls kernel_tuner.strategies.hillclimbers
kernel_tuner.strategies.minimize kernel_tuner.strategies.mls
kernel_tuner.strategies.ordered_greedy_mls kernel_tuner.strategies.pso
kernel_tuner.strategies.random_sample kernel_tuner.strategies.simulated_annealing
kernel_tuner.strategies.wrapper llamea_gpu.searchers.kernel_tuner.wrapping
"""
_KERNEL_TUNER_SET = "kernel_tuner"
# How the tail of such a file begins (`llamea_gpu.searchers.optalg`).
_KERNEL_TUNER_MARK = "from llamea_gpu.searchers.kernel_tuner import"
KERNEL_TUNER_NEEDS = (
    *("kernel_tuner", "constraint", "xmltodict"),
    *("jsonschema", "jsonschema_specifications", "referencing", "rpds", "attr", "attrs"),
    *("packaging", "typing_extensions"),
)
THEIR_NEEDS = ("joblib", "threadpoolctl", "narwhals")

LIBRARIES = ("numpy", "scipy", "sklearn")

# The modules of each set, with those that their functions import late. A name that some supported
# version of a library does not have is passed over.
_MODULES = {
    "numpy": _STANDARD + _NUMPY,
    "scipy": _STANDARD + _NUMPY + _SCIPY,
    "sklearn": _STANDARD + _NUMPY + _SCIPY + _SKLEARN,
    _KERNEL_TUNER_SET: _STANDARD + _NUMPY + _SCIPY + _SKLEARN + _KERNEL_TUNER,
}


class _OnlyNeeded:
    """Hides every other installed package, so that what else a machine has changes nothing.

    scikit-learn, for one, imports pandas where it finds it, which starts a thread, and Kernel Tuner
    torch.
    """

    def __init__(self, library: str) -> None:
        needs = KERNEL_TUNER_NEEDS if library == _KERNEL_TUNER_SET else ()
        self._roots = frozenset((*LIBRARIES, *THEIR_NEEDS, *needs, "llamea_gpu"))

    def find_spec(self, name: str, *_: object) -> None:
        """The import system's question; None lets the next finder answer."""
        root = name.partition(".")[0]
        standard = root in sys.stdlib_module_names or root.startswith("_sysconfigdata")
        if not standard and root not in self._roots:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def library_for(source: str) -> str:
    """The smallest set that has what ``source`` can import, by the names in its text.

    A name in a comment costs a few milliseconds. The text is never parsed: hostile source can
    exhaust Python's parser, and this runs on the host.
    """
    if _KERNEL_TUNER_MARK in source:
        return _KERNEL_TUNER_SET
    if "sklearn" in source:
        return "sklearn"
    return "scipy" if "scipy" in source else "numpy"


def load(library: str) -> None:
    """Import the set and use what loads its data late.

    Raises:
        ImportError: numpy, scipy or scikit-learn is missing or broken.
    """
    sys.meta_path.insert(0, _OnlyNeeded(library))
    for name in _MODULES[library].split():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            if name in LIBRARIES:
                raise
    if library != "numpy":
        _use_scipy()
    if library in ("sklearn", _KERNEL_TUNER_SET):
        _use_sklearn()
    if library == _KERNEL_TUNER_SET:
        _use_kernel_tuner()


def _use_scipy() -> None:
    """Load tables and solvers that scipy reads from disk on first use."""
    import numpy as np
    from scipy import optimize
    from scipy.stats import qmc

    qmc.Sobol(2, seed=0).random(2)

    def square(x: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        return float(x @ x)

    for method in ("COBYLA", "COBYQA", "L-BFGS-B", "SLSQP", "trust-constr"):
        with contextlib.suppress(ValueError):  # a method that this version does not have
            optimize.minimize(square, np.array([0.5, 0.25]), method=method, options={"maxiter": 2})
    optimize.linprog([1.0, 1.0], bounds=[(0, 1), (0, 1)])
    optimize.milp(np.array([1.0]))


def _use_sklearn() -> None:
    """Load what scikit-learn finds out on first use (its thread pools, above all)."""
    with warnings.catch_warnings(), contextlib.suppress(ModuleNotFoundError):
        warnings.simplefilter("ignore")  # it says that it is not needed any more
        importlib.import_module("sklearn.experimental.enable_hist_gradient_boosting")
    import numpy as np
    from sklearn.cluster import KMeans
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.neighbors import KNeighborsRegressor

    points = np.linspace(0.0, 1.0, 24).reshape(12, 2)
    values = points.sum(axis=1)
    for model in (
        KMeans(n_clusters=2, n_init=1, random_state=0),
        GaussianProcessRegressor(),
        RandomForestRegressor(n_estimators=2, random_state=0),
        HistGradientBoostingRegressor(max_iter=1, random_state=0),
        KNeighborsRegressor(),
    ):
        model.fit(points, values).predict(points)


def _use_kernel_tuner() -> None:
    """Make available what files written for BLADE take for granted; without Kernel Tuner, nothing.

    The module is found by name because only this set has it.
    """
    wrapping = sys.modules.get("llamea_gpu.searchers.kernel_tuner.wrapping")
    if wrapping is not None:
        wrapping.provide_names()
