"""One fixed context for every rendered prompt."""

from __future__ import annotations

import math

import pytest

from llamea_gpu.prompting import (
    Feedback,
    ParentView,
    PromptContext,
    SpaceFacts,
    SpaceResult,
    Tried,
)
from llamea_gpu.spaces.features import ParameterFeatures, SpaceFeatures

SOURCE = '''"""Local search with restarts."""

import math


class RestartedDescent:
    """Descends over Hamming neighbours and restarts where nothing improves.

    ```
    RestartedDescent(first=8)
    ```
    """

    def __init__(self, first=16, batch=8):
        self.first = first
        self.batch = batch

    def __call__(self, evaluate, space, rng):
        while True:
            starts = space.sample(self.first)
            costs = evaluate(starts)
            best = min(costs)
            current = starts[costs.index(best)]
            while best < math.inf:
                around = space.neighbors(current)
                rng.shuffle(around)
                costs = evaluate(around[: self.batch])
                if not costs or min(costs) >= best:
                    break
                best = min(costs)
                current = around[costs.index(best)]
'''

ERROR = """Traceback (most recent call last):
  File "<optimizer>", line 21, in __call__
    best = min(costs)
ValueError: min() arg is an empty sequence, in <RestartedDescent object at 0x7f3a12c0d2e0>
"""


def facts(kernel: str, device: str, size: int, budget: float, parallel: int) -> SpaceFacts:
    """A space of 14 parameters, two more than are listed."""
    block = tuple(
        ParameterFeatures(f"block_size_{axis}", 5, True, "16, 32, 64, 128, 256", effect)
        for axis, effect in (("x", 0.02), ("y", 0.311), ("z", 0.0051))
    )
    layout = ParameterFeatures("layout", 40, False, ", ".join(f"tile_{i}" for i in range(40)), 0.04)
    others = tuple(ParameterFeatures(f"flag_{i}", 2, True, "0, 1", 0.0) for i in range(10))
    features = SpaceFeatures(
        name=f"{kernel}-{device}",
        kernel=kernel,
        device=device,
        framework="CUDA",
        size=size,
        dimension=14,
        failure_share=0.0412,
        optimum_ms=0.73219,
        median_ms=1.9,
        cost_quantiles_ms={0.0: 0.73219, 0.5: 1.9, 1.0: 44.0},
        share_within={1: 0.0004, 5: 0.0031, 10: 0.012},
        parameters=(*block, layout, *others),
        interactions=(("block_size_x", "block_size_y", 0.08), ("layout", "block_size_y", 0.011)),
        hamming_degree=23.4,
        neighbour_autocorrelation=0.713,
        local_optima=31,
        local_optima_share=0.0074,
        fitness_distance_correlation=0.42,
        compile_s=(1.234, 3.4, 19.9),
        benchmark_s=(0.1, 0.25, 0.25),
    )
    clock = "sequential" if parallel == 1 else f"parallel({parallel})"
    return SpaceFacts(features, clock, budget, parallel)


@pytest.fixture
def spaces() -> tuple[SpaceFacts, ...]:
    return (
        facts("convolution", "A100", 4_362, 123.4, 1),
        facts("dedispersion", "MI250X", 11_130, 2_760.0, 1),
        facts("matmul", "H200", 2_304, 96.25, 16),
        facts("softmax", "H200", 1_680, 210.0, 16),
        facts("hotspot", "A4000", 18_432, 8.2, 1),
    )


@pytest.fixture
def parents() -> tuple[ParentView, ...]:
    results = (
        SpaceResult(
            space="convolution-A100",
            p=0.61249,
            standard_error=0.0312,
            reference="genetic_algorithm",
            reference_p=0.41,
            evaluations=118.2,
            revisit_share=0.62,
            failure_share=0.04,
            last_improvement=0.87,
            regret=0.003,
            cpu_s=0.213,
        ),
        SpaceResult(
            space="dedispersion-MI250X",
            p=0.1,
            standard_error=0.05,
            reference="genetic_algorithm",
            reference_p=0.38,
            evaluations=2711.0,
            revisit_share=0.08,
            failure_share=0.31,
            last_improvement=0.21,
            regret=0.0871,
            cpu_s=0.549,
        ),
        SpaceResult(
            space="matmul-H200",
            p=0.4,
            standard_error=0.02,
            reference="iterated_local_search",
            reference_p=0.39995,
            evaluations=95.0,
            revisit_share=0.0,
            failure_share=0.0,
            last_improvement=0.93,
            regret=math.inf,
            cpu_s=0.04,
        ),
    )
    mechanisms = (
        "Its first batch (96 configurations) takes 42 % of the budget on matmul-H200 "
        "(about 0.12 of P).",
        "38 % of its evaluations fail on dedispersion-MI250X after the first quarter of them "
        "(about 0.03 of P).",
    )
    full = Feedback(0.37083, 0.0204, "full", "ok", results, None, mechanisms)
    failed = Feedback(None, None, "smoke", "error", (), ERROR)
    other = SOURCE.replace("RestartedDescent", "BatchedDescent").replace("16", "32")
    return (
        ParentView("c0007", "Descends over Hamming neighbours and restarts.", SOURCE, full),
        ParentView("c0012", "Descends in larger batches.", other, failed),
    )


@pytest.fixture
def context(spaces, parents) -> PromptContext:
    """Everything but parents, which each operator takes as many of as it needs."""
    return PromptContext(
        spaces=spaces,
        parents=parents,
        previous_ideas=("Random search with a tabu list.", "A Gaussian process on ranks."),
        tried=(
            Tried(
                identifier="c0007",
                idea="Descends over Hamming neighbours and restarts.",
                outcome="scored",
                p=0.37083,
                standard_error=0.0204,
                space_p={
                    "convolution-A100": 0.61249,
                    "dedispersion-MI250X": 0.1,
                    "matmul-H200": 0.4,
                },
            ),
            Tried("c0009", "Tabu list | on ranks.", "stopped", space_p={"matmul-H200": -0.123}),
            Tried("c0012", "Descends in larger batches.", "failed", "error"),
            Tried("c0013", "", "failed", "no-class"),
        ),
        problem="Line 21 uses 'np', which is never defined or imported.",
        failed_answer="Idea: faster.\n\n```python\nclass Broken:\n    pass\n```\n",
        cpu_limit_s=10.0,
    )
