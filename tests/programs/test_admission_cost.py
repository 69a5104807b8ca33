"""What reading a program costs grows with its length, whatever it is made of.

Counted are the interpreter's instructions: the same on every machine, unlike seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from llamea_gpu.programs import admit

_OPTIMIZER = '''
class Search:
    """Looks at one configuration."""

    def __init__(self, step=1):
        self.step = step

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(self.step))
'''


def _lines(line: str, count: int) -> str:
    """``line`` again and again, numbered by {i} and, one less, by {h}."""
    return "".join(line.format(i=i, h=i - 1) for i in range(1, count + 1)) + "\n"


_SHAPES: dict[str, Callable[[int], str]] = {
    "functions": lambda n: _lines("def f{i}(): pass\n", n) + _OPTIMIZER,
    "functions in a function": lambda n: (
        "def outer():\n" + _lines("    def f{i}(): pass\n", n) + _OPTIMIZER
    ),
    "methods": lambda n: _OPTIMIZER + _lines("    def f{i}(self): pass\n", n),
    "constructors": lambda n: (
        _lines("class C{i}:\n    def __init__(self, a{i}=1): pass\n", n) + _OPTIMIZER
    ),
    "a line of classes": lambda n: (
        "class C0: pass\n" + _lines("class C{i}(C{h}): pass\n", n) + _OPTIMIZER
    ),
    "a line of optimizers": lambda n: (
        _OPTIMIZER.replace("Search", "C0") + _lines("class C{i}(C{h}): pass\n", n)
    ),
    "classes with two bases": lambda n: (
        "class A0: pass\nclass B0: pass\n"
        + _lines("class A{i}(A{h}, B{h}): pass\nclass B{i}(A{h}, B{h}): pass\n", n // 2)
        + _OPTIMIZER
    ),
    "functions and locals": lambda n: (
        _lines("def f{i}():\n    global x{i}\n    y{i} = x{i} = 1\n", n) + _OPTIMIZER
    ),
    "calls": lambda n: "def g():\n" + _lines("    g(g(g()))\n", n) + _OPTIMIZER,
    "handlers": lambda n: (
        "def g():\n" + _lines("    try: g()\n    except ValueError: pass\n", n) + _OPTIMIZER
    ),
}


def _instructions(source: str) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        admit(source)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("shape", _SHAPES)
def test_reading_a_program_takes_time_in_its_length(shape: str) -> None:
    first, second, third = (_instructions(_SHAPES[shape](count)) for count in (20, 60, 100))
    assert third - second < 1.1 * (second - first)
