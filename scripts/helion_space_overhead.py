"""CPU time that HelionSpace costs on a real configuration space, beside what tuning costs anyway.

    python scripts/helion_space_overhead.py [KERNEL] [GPU]

A kernel of tuning_spaces/kernels/helion (default matmul) on a pretended GPU (default H200): nothing
is compiled or timed. A neighbourhood and a sample are new each time, so no cache helps.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.frameworks.helion.static import pretend_gpu

REPEATS = 15


def median_ms(action: Callable[[], object]) -> float:
    """Median CPU time of several calls."""
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        action()
        taken.append(1000 * (time.process_time() - began))
    return statistics.median(taken)


def main(kernel: str = "matmul", gpu: str = "H200") -> None:
    with pretend_gpu(gpu) as pretended:
        with pretended.fake_tensors():
            case = load_case(find_script(kernel))
        generation = pretended.bind(case.kernel, case.arguments).config_spec
        space = HelionSpace(generation.create_config_generation(), np.random.default_rng(1))
        rng = np.random.default_rng(2)
        homes = iter(space.sample(4 * REPEATS))
        actions: dict[str, Callable[[], object]] = {
            "sample(100)": lambda: space.sample(100),
            "neighbors, hamming": lambda: space.neighbors(next(homes)),
            "neighbors, adjacent": lambda: space.neighbors(next(homes), "adjacent"),
            "repair": lambda: space.repair(rng.random(len(space.names)) * space.cardinalities),
        }
        print(f"{kernel} on {gpu}: {len(space.names)} parameters, median CPU time of {REPEATS}")
        for name, action in actions.items():
            print(f"{name:20s} {median_ms(action):7.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
