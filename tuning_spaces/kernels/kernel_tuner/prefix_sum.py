"""Inclusive prefix sums of each row of an 8192 x 4096 float32 matrix.

Tuning parameters:

- ``block_size_x``: threads that share a row.
- ``block_size_y``: such groups of threads in a block, each on a row of its own.
- ``items_per_thread``: items of a row that a thread takes at once; those of a group are a tile, and
  tiles follow one another along the row.
- ``vector``: floats that one load or store takes.
- ``arrangement``: a thread's items are neighbours (``blocked``), so that a warp's loads are apart;
  vectors a group's width apart (``striped``), each of which is scanned across the group; or come
  striped and are ``transposed`` through shared memory to neighbours, and back.
- ``padding``: a gap in shared memory after each thread's items where they are transposed, and after
  each lane's share of the sums where they are raked, against bank conflicts.
- ``scan``: across the threads, sums go ``by_shuffles`` within warps, then across; ``by_raking``,
  where one warp goes through the sums of all; or ``by_doubling`` the distance over which all
  threads add in shared memory, with a barrier for each distance.
- ``prefetch``: the next tile is loaded before this one is scanned, for twice the registers.
- ``streaming``: loads and stores ask the caches not to keep the values.

Constraints: 128 to 512 threads; a tile is at most a row, and half a row when the next one is
prefetched; at most 8 stripes to scan; no ``striped`` or ``transposed`` with one vector a thread,
which are ``blocked`` all the same; padding only where it is used; 48 KiB of shared memory.
"""

from pathlib import Path

import numpy as np

INFO = {
    "name": "prefix_sum-8192x4096",
    "note": "float32 prefix sums by row, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 256,
        "block_size_y": 1,
        "items_per_thread": 4,
        "vector": 4,
        "arrangement": "blocked",
        "padding": 0,
        "scan": "by_shuffles",
        "prefetch": 0,
        "streaming": 0,
    },
}

TUNE_PARAMS = {
    "block_size_x": [32, 64, 128, 256, 512],
    "block_size_y": [1, 2, 4],
    "items_per_thread": [4, 8, 16, 32],
    "vector": [1, 4],
    "arrangement": ["blocked", "striped", "transposed"],
    "padding": [0, 1],
    "scan": ["by_shuffles", "by_raking", "by_doubling"],
    "prefetch": [0, 1],
    "streaming": [0, 1],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "block_size_x * items_per_thread * (1 + prefetch) <= 4096",
    "arrangement == 'blocked' or items_per_thread > vector",
    "arrangement != 'striped' or items_per_thread <= 8 * vector",
    "padding == 0 or arrangement == 'transposed' or scan == 'by_raking'",
    # Tiles, if transposed, and twice the sums by doubling, which are the most.
    "block_size_x * block_size_y * 4 * ((arrangement == 'transposed')"
    " * (items_per_thread + padding * vector) + (1 + (scan == 'by_doubling'))"
    " * (items_per_thread // vector if arrangement == 'striped' else 1)) + 512 <= 48 * 1024",
]

COMPARED_ROWS = 128  # at a time, so that they stay in the cache


def tune_kernel_arguments(rows: int = 8192, columns: int = 4096) -> dict:
    """Keyword arguments of ``tune_kernel`` for a matrix of this size."""
    matrix = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
    return {
        "kernel_name": "prefix_sum",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": rows,
        "grid_div_x": ["block_size_y"],
        "arguments": [np.zeros((rows, columns), dtype=np.float32), matrix, np.int32(columns)],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(matrix), None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(matrix: np.ndarray) -> np.ndarray:
    """Prefix sums of the rows, added up in double precision."""
    sums = np.empty_like(matrix)
    for i in range(0, len(matrix), COMPARED_ROWS):
        sums[i : i + COMPARED_ROWS] = matrix[i : i + COMPARED_ROWS].cumsum(1, dtype=np.float64)
    return sums


def close_enough(answer: list, result: list) -> bool:
    """The largest relative error of a sum, none of them negative; fast."""
    parts = [slice(i, i + COMPARED_ROWS) for i in range(0, len(answer[0]), COMPARED_ROWS)]
    return all(
        bool((np.abs(answer[0][part] - result[0][part]) <= 1e-4 * answer[0][part]).all())
        for part in parts
    )
