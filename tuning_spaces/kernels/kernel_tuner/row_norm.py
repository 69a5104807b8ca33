"""Layer normalisation of the rows of a 6144 x 2048 float32 matrix, with scale and shift.

Tuning parameters:

- ``block_size_x``: threads that share a row.
- ``block_size_y``: such groups of threads in a block, each on rows of its own.
- ``rows_in_turn``: rows that a group normalises one after another.
- ``vector``: floats that one load or store takes.
- ``kept``: where a row stays until it is written: ``in_registers``, ``in_shared`` memory, or
  nowhere: it is ``reloaded`` for each pass.
- ``unroll_vectors``: vectors of a row that are unrolled, which lets their loads overlap; in
  registers all of them are.
- ``moments``: mean and variance come by ``two_pass`` (the squared deviations after the mean), by
  ``welford``'s recurrence (a division a value, by a constant where all is unrolled), or from
  ``sums`` of values and squares.
- ``combine``: the moments of a group's threads are combined ``by_shuffle`` within warps, then
  across, or ``by_tree`` in shared memory.
- ``weights``: scale and shift are read ``from_global`` memory for each row, or ``from_shared``
  memory, where a block puts them once.
- ``streaming``: the last load of a value and the store of its result ask the caches not to keep it.

Constraints: 128 to 512 threads; at most half a thread's vectors unrolled, other than in registers,
where ``unroll_vectors`` is 1; scale and shift in shared memory only for several rows in turn; 48
KiB of shared memory.
"""

from pathlib import Path

import numpy as np

COLUMNS = 2048  # also said in the kernel
EPSILON = 1e-5

INFO = {
    "name": "row_norm-6144x2048",
    "note": "float32 layer normalisation by row, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 256,
        "block_size_y": 1,
        "rows_in_turn": 1,
        "vector": 4,
        "kept": "reloaded",
        "unroll_vectors": 1,
        "moments": "two_pass",
        "combine": "by_shuffle",
        "weights": "from_global",
        "streaming": 0,
    },
}

TUNE_PARAMS = {
    "block_size_x": [32, 64, 128, 256, 512],
    "block_size_y": [1, 2, 4],
    "rows_in_turn": [1, 4],
    "vector": [1, 4],
    "kept": ["in_registers", "in_shared", "reloaded"],
    "unroll_vectors": [1, 4],
    "moments": ["two_pass", "welford", "sums"],
    "combine": ["by_shuffle", "by_tree"],
    "weights": ["from_global", "from_shared"],
    "streaming": [0, 1],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "unroll_vectors == 1 or kept != 'in_registers'",
    "kept == 'in_registers' or unroll_vectors * vector * block_size_x <= 1024",
    "weights == 'from_global' or rows_in_turn > 1",
    "(kept == 'in_shared') * block_size_y * 8192 + (weights == 'from_shared') * 16384"
    " + (combine == 'by_tree') * block_size_x * block_size_y * 8 + 128 <= 48 * 1024",
]

COMPARED_ROWS = 128  # at a time, so that they stay in the cache


def tune_kernel_arguments(rows: int = 6144) -> dict:
    """Keyword arguments of ``tune_kernel`` for a matrix with so many rows."""
    rng = np.random.default_rng(0)
    matrix = rng.random((rows, COLUMNS), dtype=np.float32)
    scale = rng.random(COLUMNS, dtype=np.float32) + 0.5
    shift = rng.random(COLUMNS, dtype=np.float32)
    return {
        "kernel_name": "row_norm",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": rows,
        "grid_div_x": ["block_size_y", "rows_in_turn"],
        "arguments": [np.zeros((rows, COLUMNS), dtype=np.float32), matrix, scale, shift],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(matrix, scale, shift), None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(matrix: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Rows normalised; their moments in double precision."""
    normalised = np.empty_like(matrix)
    for i in range(0, len(matrix), COMPARED_ROWS):
        rows = matrix[i : i + COMPARED_ROWS]
        mean = rows.mean(axis=1, dtype=np.float64, keepdims=True)
        variance = np.square(rows - mean).mean(axis=1, keepdims=True)
        normalised[i : i + COMPARED_ROWS] = (rows - mean) / np.sqrt(variance + EPSILON)
    normalised *= scale
    normalised += shift
    return normalised


def close_enough(answer: list, result: list) -> bool:
    """The largest error of a value; fast."""
    parts = [slice(i, i + COMPARED_ROWS) for i in range(0, len(answer[0]), COMPARED_ROWS)]
    errors = [np.abs(answer[0][part] - result[0][part]).max() for part in parts]
    return bool(np.max(errors) < 1e-4)
