"""Optimizers of a pretended library, for the runner's tests: built by name in a worker process."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np


class RandomSearch:
    """The shipped one's loop."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        for config in space.sample(space.size):
            evaluate([config])


class Careless:
    """Uses every generator but its own."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        pool = space.pool(space.size)
        while True:
            for number in (
                random.random(),
                np.random.random(),  # noqa: NPY002 - what is tested
                np.random.default_rng().random(),
                next(iter({"a", "b", "c", "d"})) == "a",
            ):
                evaluate([tuple(pool[int(number * (len(pool) - 1))])])


class Returns:
    """Stops of itself."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        evaluate(space.sample(2))


class Raises:
    """A fault."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        evaluate(space.sample(1))
        _ = 1 / 0


class AsksForNonsense:
    """Breaks the contract."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        evaluate([(10**6,) * len(space.names)])


class Revisits:
    """Never asks for anything new."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        first = space.sample(1)
        while True:
            evaluate(first)


class Spins:
    """Uses CPU."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        while True:
            pass


class Thinks:
    """Uses some CPU before each ask."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        for config in space.sample(space.size):
            sum(range(100_000))
            evaluate([config])


class Dies:
    """Takes its process down."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        os._exit(9)


class DiesMarked(Dies):
    """Takes its process down, and leaves a mark each time."""

    def __init__(self, marks: str = "") -> None:
        with open(marks, "a", encoding="ascii") as file:
            file.write("x")


class Spinning:
    """Says which process it runs in, and never ends."""

    def __init__(self, pid_file: str = "") -> None:
        self.pid_file = Path(pid_file)

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        part = self.pid_file.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.rename(self.pid_file)
        while True:
            pass
