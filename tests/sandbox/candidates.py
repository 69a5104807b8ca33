"""Honest candidates, and whether two runs are the same. Without pytest: `as_user` needs it too."""

from __future__ import annotations

import numpy as np

from llamea_gpu.programs import Program
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.tasks import Task, Trace

HONEST = """
class Honest:
    def __call__(self, evaluate, space, rng):
        best, cost = None, float("inf")
        while True:
            for config in space.sample(3) + (space.neighbors(best) if best else []):
                value = evaluate([config])[0]
                if value < cost:
                    best, cost = config, value
"""


def candidate(body: str, task: Task, seed: int = 0, limits: Limits | None = None) -> Job:
    indented = "\n".join(" " * 8 + line for line in body.strip("\n").splitlines())
    source = (
        "import math, os, random, sys, time\nimport numpy as np\n\nclass C:\n"
        f"    def __call__(self, evaluate, space, rng):\n{indented}\n"
    )
    return Job(Program.unread(source, "C"), task, seed, limits or Limits())


def honest_job(task: Task, seed: int = 0) -> Job:
    return Job(Program.unread(HONEST, "Honest"), task, seed)


def same(a: Trace, b: Trace) -> bool:
    """Equal in all but CPU time."""
    return (
        np.array_equal(a.rows, b.rows)
        and np.array_equal(a.elapsed_s, b.elapsed_s)
        and np.array_equal(a.cost_ms, b.cost_ms)
        and (a.outcome, a.asks, a.revisits, a.error) == (b.outcome, b.asks, b.revisits, b.error)
    )
