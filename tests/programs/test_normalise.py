"""The digest: equal for trivial rewrites, different where behaviour may differ."""

from __future__ import annotations

import pytest

from llamea_gpu.programs import admit

BASE = '''import numpy as np

LIMIT = 3


def spread(values, weight):
    total = sum(values)
    return [weight * value / total for value in values]


class Walk:
    """Walks."""

    def __init__(self, step=4):
        self.step = step

    def __call__(self, evaluate, space, rng):
        best = None
        while True:
            batch = space.sample(self.step)
            costs = evaluate(batch)
            order = sorted(range(len(batch)), key=lambda i: costs[i])
            try:
                best = batch[order[0]]
            except IndexError as error:
                raise ValueError("none") from error
            self.report(best, scale=spread(costs, LIMIT))

    def report(self, best, scale):
        def inner(x):
            nonlocal scale
            scale = x
        return inner(np.mean(scale))
'''


def digest(source: str) -> str:
    return admit(source).digest


SAME = {
    "comments": [("LIMIT = 3", "LIMIT = 3  # three")],
    "blank lines": [("\n\n\n", "\n\n"), ("        best = None\n", "        best = None\n\n")],
    "docstrings": [
        ('"""Walks."""', '"""Runs."""'),
        ("        best = None", '        "x"\n        best = None'),
    ],
    "no docstring": [('    """Walks."""\n\n', "")],
    "quotes": [('"none"', "'none'")],
    "parentheses": [("best = None", "best = (None)")],
    "class name": [("class Walk", "class AdaptiveWalk")],
    "local names": [("batch", "points"), ("costs", "times"), ("order", "ranks")],
    "a lambda's parameter": [("lambda i: costs[i]", "lambda row: costs[row]")],
    "a comprehension's variable": [("value / total for value in", "v / total for v in")],
    "an exception's name": [("as error", "as e"), ("from error", "from e")],
    "an inner function": [("inner", "nested"), ("(x)", "(y)"), ("= x", "= y")],
    "annotations": [("best = None", "best: object = None"), ("rng):", "rng: object) -> None:")],
    "declared type": [("        best = None", "        best = None\n        batch: list")],
    "names of the contract's arguments": [("evaluate", "func"), ("space", "domain")],
}


@pytest.mark.parametrize("replacements", SAME.values(), ids=SAME.keys())
def test_a_trivial_rewrite_has_the_same_digest(replacements):
    source = BASE
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    assert digest(source) == digest(BASE)


DIFFERENT = {
    "a constant": [("LIMIT = 3", "LIMIT = 4")],
    "a number's type": [("LIMIT = 3", "LIMIT = 3.0")],
    "a default": [("step=4", "step=5")],
    "a hyperparameter's name": [("step", "stride")],
    "an attribute": [("space.sample", "space.pool")],
    "the order of statements": [
        (
            "batch = space.sample(self.step)\n            costs = evaluate(batch)",
            "costs = evaluate(batch)\n            batch = space.sample(self.step)",
        )
    ],
    "two variables merged": [("costs", "batch")],
    "two variables swapped": [("weight * value / total", "weight * total / value")],
    "an imported name": [("np.mean", "np.sum")],
    "which variable is returned": [("[weight * value / total for value in values]", "values")],
}


@pytest.mark.parametrize("replacements", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_another_behaviour_has_another_digest(replacements):
    source = BASE
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    assert digest(source) != digest(BASE)


def test_a_parameter_passed_by_keyword_keeps_its_name():
    """f(a, b) called with a=1, b=2 is not f(b, a) called with a=1, b=2."""
    call = "        return self.mix(a=1, b=2)\n"
    head = (
        "class Walk:\n    def __init__(self): ...\n    def __call__(self, evaluate, space, rng):\n"
    )
    first = head + call + "    def mix(self, a, b):\n        return a - b\n"
    second = head + call + "    def mix(self, b, a):\n        return b - a\n"
    assert digest(first) != digest(second)


def test_a_digest_is_pinned():
    """It is stored in archives: a change of the rule must be deliberate, on every Python."""
    assert digest(BASE) == "d65b7d8d377d1acf3f541c52b39656cf7802418c3ad404512e494e8303e39cfb"
