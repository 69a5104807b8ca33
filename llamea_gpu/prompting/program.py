"""An admitted optimizer: source text with what was read from it, statically.

Not here: the checks that lead to one (``admission``), and running it (the sandbox).
"""

from __future__ import annotations

from dataclasses import dataclass

Hyperparameter = float | int | bool | str


@dataclass(frozen=True, slots=True)
class Program:
    """One optimizer under the contract. Its source has never been executed by this process.

    Attributes:
        source: Python text with "\\n" line ends, exactly one at the end.
        class_name: the optimizer class in it.
        hyperparameters: (name, default) of each ``__init__`` parameter whose default is a finite
            number, a bool or a string literal, in order.
        idea: one line, at most 200 characters.
        digest: SHA-256 (hex) of the normalised syntax tree; equal for trivial rewrites.
    """

    source: str
    class_name: str
    hyperparameters: tuple[tuple[str, Hyperparameter], ...]
    idea: str
    digest: str
