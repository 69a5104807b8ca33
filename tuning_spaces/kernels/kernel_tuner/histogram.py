"""Histogram of 31457280 weighted values: the sum of the weights in each of 1024 bins, in float32.

The values are skewed to the low bins, and come in runs that stay within a bin or two.

Tuning parameters:

- ``block_size_x``: threads of a block.
- ``blocks``: blocks in all, which take rounds of work in turn: more of them balance the load, and
  each clears its copies of the histogram and adds them to the result.
- ``vector``: floats that one load takes.
- ``loads_in_flight``: vectors of values, and as many of weights, that a thread loads in a round
  before it adds.
- ``assignment``: a thread's vectors of a round lie a block's width apart, so that neighbouring
  threads always read neighbouring vectors (``by_round``), or next to each other (``by_thread``).
- ``copies``: copies of the histogram in a block's shared memory, which keep atomic additions apart.
- ``layout``: the copies of a bin lie next to each other (``interleaved``), or whole copies lie one
  after another, directly (``apart``) or ``padded``, so that a bin's copies are in different banks.
- ``copy_for``: neighbouring ``lanes`` or neighbouring ``warps`` add to different copies.
- ``combine``: additions to one bin are combined before they become atomic: ``nothing``, a thread's
  adjacent items (``in_thread``), or the items that four neighbouring lanes hold (``in_lanes``).
- ``flush``: the bins and copies are added to the result ``in_order``, or ``rotated``: each block
  begins with another bin, each thread with another copy.

Constraints: 512 to 4096 threads for each of 132 multiprocessors; at least 4 items a thread in a
round; assignment differs only for several loads; layout and use of copies only for several copies,
for different warps at most as many as there are warps, and not padded, as lanes then share a copy;
a thread combines only items that are adjacent.
"""

from pathlib import Path

import numpy as np

BINS = 1024  # also said in the kernel
RUN = 8  # values that resemble each other

INFO = {
    "name": "histogram-31457280",
    "note": "float32 weighted histogram, bound by atomic additions in shared memory",
    "default_configuration": {
        "block_size_x": 256,
        "blocks": 1056,
        "vector": 4,
        "loads_in_flight": 1,
        "assignment": "by_round",
        "copies": 1,
        "layout": "apart",
        "copy_for": "lanes",
        "combine": "nothing",
        "flush": "in_order",
    },
}

TUNE_PARAMS = {
    "block_size_x": [128, 256, 512, 1024],
    "blocks": [132, 528, 1056],
    "vector": [1, 4],
    "loads_in_flight": [1, 4],
    "assignment": ["by_round", "by_thread"],
    "copies": [1, 4, 8],
    "layout": ["interleaved", "apart", "padded"],
    "copy_for": ["lanes", "warps"],
    "combine": ["nothing", "in_thread", "in_lanes"],
    "flush": ["in_order", "rotated"],
}

RESTRICTIONS = [
    "132 * 512 <= block_size_x * blocks <= 132 * 4096",
    "vector * loads_in_flight >= 4",
    "assignment == 'by_round' or loads_in_flight > 1",
    "copies > 1 or (layout == 'apart' and copy_for == 'lanes')",
    "copy_for == 'lanes' or (copies <= block_size_x // 32 and layout != 'padded')",
    "combine != 'in_thread' or vector > 1 or assignment == 'by_thread'",
]


def tune_kernel_arguments(count: int = 30 << 20) -> dict:
    """Keyword arguments of ``tune_kernel`` for so many values; a multiple of 16384."""
    rng = np.random.default_rng(0)
    values = np.repeat(0.9989 * rng.random(count // RUN, dtype=np.float32) ** 3, RUN)
    values += np.float32(0.001) * rng.random(count, dtype=np.float32)  # about a bin
    weights = rng.random(count, dtype=np.float32)
    return {
        "kernel_name": "histogram",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": ("blocks",),
        "grid_div_x": [],
        "arguments": [np.zeros(BINS, dtype=np.float32), values, weights, np.int32(count)],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(values, weights), None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of the weights in each bin, added up in double precision."""
    # Exact, as the number of bins is a power of 2.
    sums = np.bincount((values * BINS).astype(np.int32), weights, minlength=BINS)
    return sums.astype(np.float32)


def close_enough(answer: list, result: list) -> bool:
    """The largest relative error of a bin; additions come in any order, and a bin may be empty."""
    return bool((np.abs(result[0] - answer[0]) <= 1e-4 * answer[0]).all())
