"""What is admitted, what is refused and how the refusal reads."""

from __future__ import annotations

import textwrap

import pytest

from llamea_gpu.errors import AnswerError
from llamea_gpu.programs import ALLOWED_MODULES, ALLOWED_PACKAGES, admit, reading
from llamea_gpu.programs.reading import MAX_SOURCE_CHARS
from llamea_gpu.programs.syntax import MAX_DEPTH, MAX_INTEGER_BITS

GOOD = '''"""A module."""

import math

import numpy as np
from scipy.stats import norm


class TabuWalk:
    """Walks with a tabu list, e.g. a short one. Restarts when stuck.

    More text.
    """

    def __init__(self, step=4, decay=-0.5, greedy=True, kind="hamming", seed=None, sizes=(1, 2)):
        self.step = step

    def __call__(self, evaluate, space, rng):
        tabu = set()
        while True:
            batch = [c for c in space.sample(self.step) if c not in tabu]
            try:
                costs = evaluate(batch)
            except np.linalg.LinAlgError:
                continue
            tabu.update(batch)
            best = min(costs, default=math.inf) + norm.pdf(0.0)
            print(best)
'''


def with_body(body: str, head: str = "", init: str = "def __init__(self): ...") -> str:
    """An optimizer whose ``__call__`` does ``body``, in a module that begins with ``head``."""
    parts = [textwrap.dedent(head), "class Walk:", textwrap.indent(init, "    ")]
    parts += ["    def __call__(self, evaluate, space, rng):"]
    return "\n".join([*parts, textwrap.indent(textwrap.dedent(body), "        ")])


def refusal(source: str) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        admit(source)
    return caught.value


def test_a_program_is_read():
    program = admit(GOOD)
    assert program.class_name == "TabuWalk"
    assert program.source == GOOD
    assert program.idea == "Walks with a tabu list, e.g. a short one."


def test_literal_defaults_are_hyperparameters():
    assert admit(GOOD).hyperparameters == (
        ("step", 4),
        ("decay", -0.5),
        ("greedy", True),
        ("kind", "hamming"),
    )


def test_keyword_only_defaults_are_hyperparameters():
    source = with_body("pass", init="def __init__(self, a=1, *, b=2.5): ...")
    assert admit(source).hyperparameters == (("a", 1), ("b", 2.5))


@pytest.mark.parametrize("default", ["1e999", "-1e999", "[]", "1 / 3", "not True", "-True", "b'x'"])
def test_other_defaults_are_no_hyperparameters(default):
    source = with_body("pass", init=f"def __init__(self, a={default}): ...")
    assert admit(source).hyperparameters == ()


def test_line_ends_and_the_end_are_unified():
    assert admit("\ufeff\n\n" + GOOD.replace("\n", "\r\n") + "\r\n\r\n").source == GOOD


def test_an_idea_is_one_bounded_line():
    program = admit(GOOD.replace("Walks with", "Walks " + "far\n    and " * 100 + "with"))
    assert len(program.idea) <= 200
    assert "\n" not in program.idea


def test_the_class_names_the_idea_when_nothing_else_does():
    assert admit(with_body("pass")).idea == "Walk"


@pytest.mark.parametrize("module", [*ALLOWED_MODULES, *ALLOWED_PACKAGES])
def test_what_the_prompt_allows_is_admitted(module):
    name = "annotations" if module == "__future__" else "zip_longest"
    admit(with_body("pass", head=f"from {module} import {name}"))


ALLOWED = {
    "submodules": with_body(
        "return a, b, c",
        "import scipy.optimize as a\nfrom sklearn.gaussian_process import kernels as b\n"
        "from collections.abc import Sequence as c",
    ),
    "import in a function": with_body("import math\nreturn math.pi"),
    "constants": with_body(
        "return INF, ROOT, P",
        "import numpy as np\nINF = float('inf')\nROOT = np.sqrt(2.0)\nP: int = 3",
    ),
    "an import with a fallback": with_body(
        "return norm",
        "try:\n    from scipy.stats import norm\nexcept ImportError:\n    norm = None",
    ),
    "settings of libraries": with_body(
        "pass",
        "import warnings\nimport numpy\nwarnings.simplefilter('ignore')\nnumpy.seterr(all='warn')",
    ),
    "a helper class with a call": with_body(
        "return Kernel()(1, 2, 3)", "class Kernel:\n    def __call__(self, a, b, c): return a"
    ),
    "inherited methods": "class Base:\n    def __init__(self, a=1): ...\n"
    "    def __call__(self, evaluate, space, rng): ...\nclass Walk(Base):\n    pass",
    "more parameters with defaults": "class Walk:\n    def __init__(self): ...\n"
    "    def __call__(self, evaluate, space, rng, trace=None, *rest, log=False): ...",
    "no hyperparameters": "class Walk:\n    def __call__(self, evaluate, space, rng): ...",
    "a list called open": with_body("open = [1]\nreturn open.pop()"),
    "broad handlers that raise again": with_body(
        "try:\n    pass\nexcept BaseException:\n    raise"
    ),
    "except Exception": with_body("try:\n    pass\nexcept Exception:\n    pass"),
    "lazy annotations": with_body(
        "x: Undefined = 1", "from __future__ import annotations\ndef f(a: Missing) -> None: ..."
    ),
    "a seeded generator": with_body("np.random.default_rng(3)", "import numpy as np"),
    "self by position only": with_body("pass", init="def __init__(self, /, m=1): ..."),
    "one worker": with_body("evaluate(workers=1), evaluate(workers=None)"),
    "jobs, which run one by one": with_body("evaluate(n_jobs=-1)"),
    "an odd escape": with_body(r"return '\d'"),
    "globals, nonlocals, comprehensions": with_body(
        "global seen\nseen = 1\nn = [i for i in range(3) if i]\n"
        "def f():\n    nonlocal n\n    n = [__name__]\n"
        "return [j for (j, k) in [(1, 2)]], lambda m: m"
    ),
    "match": with_body(
        "match rng:\n    case [a, *b]: return a, b\n    case {'c': c, **d}: return c, d"
    ),
}


@pytest.mark.parametrize("source", ALLOWED.values(), ids=ALLOWED.keys())
def test_honest_code_is_admitted(source):
    assert admit(source).class_name == "Walk"


REFUSED = {
    "syntax": ("class Walk:\n    def __init__(self:\n", "syntax", "Line 2"),
    "prose": ("Here is the class you asked for.", "syntax", "Line 1"),
    "return outside": (with_body("pass", "return 3"), "syntax", "Line 1"),
    "null byte": (with_body("x = '\0'"), "syntax", "null byte"),
    "lone surrogate": (with_body("x = '\ud800'"), "syntax", "Unicode"),
    "os": (with_body("pass", "import os"), "forbidden-import", "Line 1 imports 'os'"),
    "time": (with_body("pass", "import time"), "forbidden-import", "evaluate.spent"),
    "datetime": (with_body("from datetime import datetime"), "forbidden-import", "'datetime'"),
    "threads": (with_body("pass", "import threading"), "forbidden-import", "batch"),
    "futures": (
        with_body("pass", "from concurrent.futures import ThreadPoolExecutor"),
        "forbidden-import",
        "'concurrent'",
    ),
    "importlib": (with_body("pass", "import importlib"), "forbidden-import", "'importlib'"),
    "relative": (with_body("pass", "from . import x"), "forbidden-import", "relative"),
    "star": (with_body("pass", "from math import *"), "forbidden-import", "imports *"),
    "second of two": (with_body("pass", "import math, sys"), "forbidden-import", "'sys'"),
    "look-alike": (with_body("pass", "import numpyx"), "forbidden-import", "'numpyx'"),
    "ctypeslib": (with_body("pass", "import numpy.ctypeslib"), "forbidden-import", "ctypeslib"),
    "ctypeslib by name": (
        with_body("pass", "from numpy import ctypeslib"),
        "forbidden-import",
        "c",
    ),
    "private": (with_body("pass", "from scipy._lib import x"), "forbidden-import", "scipy._lib"),
    "private name": (with_body("pass", "from random import _os"), "forbidden-import", "_os"),
    "scipy.io": (with_body("pass", "from scipy.io import loadmat"), "forbidden-import", "scipy.io"),
    "eval": (with_body("return eval('1')"), "forbidden-call", "'eval'"),
    "alias of exec": (with_body("run = exec"), "forbidden-call", "'exec'"),
    "open": (with_body("open('x')"), "forbidden-call", "'open'"),
    "__import__": (with_body("__import__('os')"), "forbidden-call", "'__import__'"),
    "subclasses": (with_body("().__class__.__subclasses__()"), "forbidden-call", "__subclasses__"),
    "loop at module level": (with_body("pass", "for i in range(3): pass"), "top-level", "Line 1"),
    "main guard": (with_body("pass", "if __name__ == '__main__': pass"), "top-level", "Line 1"),
    "own function at module level": (
        with_body("pass", "def f(): return 1\nTABLE = [f()]"),
        "top-level",
        "Line 2",
    ),
    "print at module level": (with_body("pass", "print('hello')"), "top-level", "Line 1"),
    "run at module level": (with_body("pass") + "\nresult = Walk()", "top-level", "Line 5"),
    "missing import": (with_body("return np.pi"), "undefined-name", "'np'"),
    "budget's name": (
        with_body("try:\n    pass\nexcept BudgetExhausted:\n    return"),
        "undefined-name",
        "BudgetExhausted",
    ),
    "bare except": (with_body("try:\n    pass\nexcept:\n    pass"), "swallows-budget", "Line 6"),
    "BaseException in a tuple": (
        with_body("try:\n    pass\nexcept (ValueError, BaseException):\n    return"),
        "swallows-budget",
        "catches BaseException",
    ),
    "unseeded": (with_body("np.random.default_rng()", "import numpy as np"), "unseeded", "seed"),
    "seed None": (with_body("random.Random(None)", "import random"), "unseeded", "Random()"),
    "all cores": (with_body("evaluate(workers=-1)"), "threads", "workers"),
    "deprecated": (
        with_body("pass", "from numpy.core.multiarray import array"),
        "forbidden-import",
        "use its public modules",
    ),
    "deprecated by name": (
        with_body("pass", "from scipy import misc"),
        "forbidden-import",
        "imports 'scipy.misc', which is deprecated",
    ),
    "for developers": (
        with_body("pass", "import sklearn.utils.estimator_checks as checks"),
        "forbidden-import",
        "developers of sklearn",
    ),
    "workers": (with_body("evaluate(workers=4)"), "threads", "workers"),
    "hyperparameters by position only": (
        with_body("pass", init="def __init__(self, m=1, /, n=2): ..."),
        "signature",
        "hyperparameters are passed by name, but the / after m",
    ),
    "no class": ("def search(evaluate, space, rng): ...", "no-class", "no class"),
    "no call": ("class Walk:\n    def __init__(self): ...", "signature", "is missing"),
    "two arguments": (
        "class Walk:\n    def __init__(self): ...\n    def __call__(self, func, space): ...",
        "signature",
        "__call__(self, evaluate, space, rng)",
    ),
    "four arguments": (
        "class Walk:\n    def __init__(self): ...\n    def __call__(self, a, b, c, d): ...",
        "signature",
        "another signature",
    ),
    "required keyword": (
        "class Walk:\n    def __init__(self): ...\n    def __call__(self, a, b, c, *, d): ...",
        "signature",
        "another signature",
    ),
    "generator": (with_body("yield evaluate([])"), "signature", "generator"),
    "two optimizers": (
        with_body("pass") + "\n" + with_body("pass").replace("Walk", "Run"),
        "ambiguous-class",
        "Walk, Run",
    ),
    "no default": (
        with_body("pass", init="def __init__(self, n): ..."),
        "no-defaults",
        "n has none",
    ),
    "one without default": (
        with_body("pass", init="def __init__(self, a, b, c=1): ..."),
        "no-defaults",
        "a, b have none",
    ),
    "keyword without default": (
        with_body("pass", init="def __init__(self, *, n): ..."),
        "no-defaults",
        "n has none",
    ),
    "kwargs": (with_body("pass", init="def __init__(self, **options): ..."), "no-defaults", "**"),
    "too long": ("#" * (MAX_SOURCE_CHARS + 1), "too-long", "simpler"),
}


@pytest.mark.parametrize(("source", "kind", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_broken_rule_is_found_and_named(source, kind, said):
    error = refusal(source)
    assert error.kind == kind
    assert said in str(error)


@pytest.mark.parametrize(("source", "kind", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_is_one_sentence(source, kind, said):
    text = str(refusal(source))
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 500


def test_up_to_three_problems_are_told_at_once():
    text = str(refusal(with_body("pass", "import os\nimport sys\nimport time\nimport socket")))
    assert text.count("imports") == 3


DEEP = {
    "unary": "-" * 20_000 + "1",
    "parentheses": "(" * 5_000 + ")" * 5_000,
    "attributes": "a" + ".b" * 20_000,
    "sum": "+".join(["1"] * 20_000),
    "lists": "[" * (MAX_DEPTH + 10) + "]" * (MAX_DEPTH + 10),
    "lambdas": "lambda:" * 2_000 + "1",
    "calls": "f(" * 190 + ")" * 190,
    "blocks": "\n".join(" " * level + "if 1:" for level in range(120)),
    "elifs": "if a: pass\n" + "elif a: pass\n" * 2_000,
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting_is_refused_without_a_crash(body):
    assert refusal(with_body(body)).kind in {"too-deep", "syntax"}


def test_a_program_just_within_the_depth_is_admitted():
    admit(with_body("x = " + "[" * 120 + "]" * 120))


@pytest.mark.parametrize("place", ["body", "default", "class", "pattern"])
def test_an_integer_that_python_cannot_print_is_refused(place):
    huge = "0x" + "f" * 4000
    source = {
        "body": with_body(f"x = -{huge}"),
        "default": with_body("pass", init=f"def __init__(self, m={huge}): ..."),
        "class": with_body("pass", init=f"MASK = {huge}"),
        "pattern": with_body(f"match space:\n    case {huge}: pass"),
    }[place]
    error = refusal(source)
    assert error.kind == "syntax"
    assert str(error) == "An integer literal may have 1024 bits at most."


def test_an_integer_of_the_most_bits_is_admitted():
    mask = (1 << MAX_INTEGER_BITS) - 1
    program = admit(with_body("pass", init=f"def __init__(self, mask={mask:#x}): ..."))
    assert program.hyperparameters == (("mask", mask),)


@pytest.mark.parametrize("fault", [ValueError, OverflowError, RecursionError, MemoryError])
def test_a_fault_of_the_analysis_is_the_answers(monkeypatch, fault):
    def fail(*_):
        raise fault

    monkeypatch.setattr(reading, "program_digest", fail)
    assert fault.__name__ in str(refusal(GOOD))
