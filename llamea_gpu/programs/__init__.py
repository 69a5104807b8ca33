"""Optimizers as programs: the one carrier of a source, and the only reader of one.

    read_program    what a text says of itself: class, hyperparameters, idea, digest
    admit           the same for a model's answer, which must also keep every rule of `screening`
    make            an instance in this very process, for live tuning alone
    shipped         the programs that come with this package, and where each comes from

A program is read by its syntax tree and never executed, but by `make` and by the sandbox's child.
`read_program` and `admit` refuse with an ``AnswerError`` whose message is one sentence for the
"repair" prompt and whose kind is one of

    too-long syntax too-deep forbidden-import forbidden-call top-level undefined-name
    swallows-budget unseeded threads                                    (the program)
    no-class ambiguous-class signature no-defaults                      (the class)

Not here: finding the code in an answer (``prompting``), specs (``searchers``).
"""

from llamea_gpu.programs.instances import make
from llamea_gpu.programs.program import Hyperparameter, Program
from llamea_gpu.programs.reading import admit, read_program
from llamea_gpu.programs.screening import ALLOWED_MODULES, ALLOWED_PACKAGES, require_contract
from llamea_gpu.programs.shipped import Provenance

__all__ = [
    "ALLOWED_MODULES",
    "ALLOWED_PACKAGES",
    "Hyperparameter",
    "Program",
    "Provenance",
    "admit",
    "make",
    "read_program",
    "require_contract",
]
