"""A program whose defaults are written in every way there is."""

from __future__ import annotations

from llamea_gpu.programs import read_program

SOURCE = '''\
"""Größe, in a module that counts bytes: äöü."""


class Mine:
    def __init__(self, größe=4, rate=0.25, *, shift=-12, damp=-1.5e-2, greedy=True,  # ünd
                 label="x", base=1 / 3, none=0, many=1_000, cap=float("inf"), wide=(
                     7
                 )):
        self.all = (größe, rate, shift, damp, greedy, many, wide)  # stays

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
'''

MINE = read_program(SOURCE)


def defaults_of(source: str) -> dict[str, object]:
    return {k: v for k, v in read_program(source).hyperparameters if not isinstance(v, str)}
