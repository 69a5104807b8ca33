"""Gravitational acceleration of 24576 bodies by each other, softened, all pairs in float32.

Tuning parameters:

- ``block_size_x``: threads of a block along the bodies.
- ``block_size_y``: groups of such threads, which share the sources (the bodies that attract) of a
  tile and add up through shared memory: more threads for the same bodies.
- ``bodies_per_thread``: bodies that a thread computes, for which a source is read once.
- ``split``: parts of the sources that go to different blocks, which add up atomically.
- ``source_memory``: sources are read ``from_global`` memory (the caches), through the ``read_only``
  path, or come ``through_shared`` memory.
- ``tile``: sources that shared memory holds; between barriers, a thread goes through its group's.
- ``layout``: ``structure_by_structure`` reads the four floats of a source at once,
  ``arrays_one_by_one`` from four arrays, ``arrays_by_four`` from four arrays the floats of four
  sources at once. Shared memory has the layout of global memory.
- ``unroll_sources``: sources that are unrolled.
- ``inverse``: the inverse of a distance is the ``reciprocal_root`` that the hardware approximates,
  or comes by ``root_and_division``, both rounded correctly, which costs more.

Constraints: 128 to 512 threads; at least 48 blocks; at most 32 pairs of bodies unrolled; four
sources at once only where at least as many are unrolled; larger tiles only in shared memory.
"""

from pathlib import Path

import numpy as np

SOFTENING = 1e-3
CHECKED_STRIDE = 64  # one body in so many has a reference

INFO = {
    "name": "nbody-24576",
    "note": "float32 gravitation of all pairs, bound by arithmetic",
    "default_configuration": {
        "block_size_x": 256,
        "block_size_y": 1,
        "bodies_per_thread": 1,
        "split": 1,
        "source_memory": "through_shared",
        "tile": 256,
        "layout": "structure_by_structure",
        "unroll_sources": 8,
        "inverse": "reciprocal_root",
    },
}

TUNE_PARAMS = {
    "block_size_x": [32, 64, 128, 256],
    "block_size_y": [1, 2, 4, 8],
    "bodies_per_thread": [1, 2, 4, 8],
    "split": [1, 4],
    "source_memory": ["from_global", "read_only", "through_shared"],
    "tile": [256, 1024],
    "layout": ["structure_by_structure", "arrays_one_by_one", "arrays_by_four"],
    "unroll_sources": [2, 8],
    "inverse": ["reciprocal_root", "root_and_division"],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "block_size_x * bodies_per_thread <= 512 * split",
    "bodies_per_thread * unroll_sources <= 32",
    "unroll_sources >= 4 or layout != 'arrays_by_four'",
    "tile == 256 or source_memory == 'through_shared'",
]


def tune_kernel_arguments(count: int = 24576) -> dict:
    """Keyword arguments of ``tune_kernel`` for so many bodies in a cube of side 1."""
    rng = np.random.default_rng(0)
    arrays = rng.random((4, count), dtype=np.float32)
    arrays[3] /= count  # masses
    # Bodies without a reference are not a number; one in each run of neighbours has one.
    exact = np.full((3, count), np.nan, dtype=np.float32)
    starts = np.arange(0, count, CHECKED_STRIDE)
    checked = starts + rng.integers(CHECKED_STRIDE, size=starts.size)
    exact[:, checked] = reference(arrays, checked)
    return {
        "kernel_name": "nbody",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (count, "split"),
        "grid_div_x": ["block_size_x", "bodies_per_thread"],
        "grid_div_y": [],
        "arguments": [
            np.zeros((3, count), dtype=np.float32),
            np.ascontiguousarray(arrays.T),
            arrays,
            np.float32(SOFTENING),
            np.int32(count),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [exact, None, None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(arrays: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    """The accelerations of these bodies, in double precision; an array for each axis."""
    x, y, z, masses = arrays.astype(np.float64)
    accelerations = np.empty((3, bodies.size))
    for i, body in enumerate(bodies):
        distances = np.stack([x - x[body], y - y[body], z - z[body]])
        squared = np.einsum("ij,ij->j", distances, distances) + SOFTENING
        accelerations[:, i] = distances @ (masses / (squared * np.sqrt(squared)))
    return accelerations


def close_enough(answer: list, result: list) -> bool:
    """The largest error of the bodies with a reference; the others must have some number."""
    checked = ~np.isnan(answer[0][0])
    error = np.abs(answer[0][:, checked] - result[0][:, checked]).max()
    return bool(error < 3e-5 and np.isfinite(result[0]).all())
