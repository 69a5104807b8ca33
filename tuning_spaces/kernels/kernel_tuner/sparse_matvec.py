"""A sparse 262144 x 262144 float32 matrix (CSR, about 64 values a row) times 8 vectors.

Half of a row's columns lie in a band around the diagonal, the others anywhere. Rows differ much in
length, and later ones are longer on average.

Tuning parameters:

- ``block_size_x``: threads of a block.
- ``threads_per_row``: lanes of a warp that share a row: many waste lanes on short rows, few make
  neighbours in a warp wait for the longest row and read from far apart.
- ``rows_in_turn``: rows that such a group of threads computes one after another.
- ``row_order``: a block's rows in turn are ``neighbouring`` ones, or ``interleaved``: a block has
  some from each part of the matrix, and so about as much work as others.
- ``vector``: stored values (and their columns) that a thread reads at once.
- ``unroll_reads``: such reads that are unrolled.
- ``vectors_at_a_time``: vectors that a block computes with; others read the matrix again.
- ``window_columns``: columns around the diagonal, the vectors' elements of which a block puts in
  shared memory; 0: none.
- ``load``: the matrix, like the vectors, comes through the ``read_only`` path, or ``streaming``,
  which asks the caches not to keep it, so that the vectors stay.
- ``combine``: the sums of a row's threads are added ``by_shuffle``, one vector after another, by
  shuffles too, but ``by_halves`` of the vectors that threads exchange, or ``by_shared`` memory.

Constraints: interleaved only with several rows in turn; 8 to 512 rows for a block (fewer would take
too many blocks for the grid's y); a window only for at least 64 neighbouring rows; 4 to 32 elements
of vectors a thread under way; a group reads at most 64 values at once.
"""

from pathlib import Path

import numpy as np

VECTORS = 8  # also said in the kernel
BAND = 256  # columns around the diagonal in which half of a row's values lie

INFO = {
    "name": "sparse_matvec-262144x64",
    "note": "float32 sparse matrix in CSR times 8 vectors, bound by gathering from the cache",
    "default_configuration": {
        "block_size_x": 256,
        "threads_per_row": 32,
        "rows_in_turn": 1,
        "row_order": "neighbouring",
        "vector": 1,
        "unroll_reads": 1,
        "vectors_at_a_time": 4,
        "window_columns": 0,
        "load": "read_only",
        "combine": "by_shuffle",
    },
}

TUNE_PARAMS = {
    "block_size_x": [128, 256, 512],
    "threads_per_row": [2, 4, 8, 16, 32],
    "rows_in_turn": [1, 4],
    "row_order": ["neighbouring", "interleaved"],
    "vector": [1, 4],
    "unroll_reads": [1, 4],
    "vectors_at_a_time": [2, 4, 8],
    "window_columns": [0, 512],
    "load": ["read_only", "streaming"],
    "combine": ["by_shuffle", "by_halves", "by_shared"],
}

RESTRICTIONS = [
    "row_order == 'neighbouring' or rows_in_turn > 1",
    "8 * threads_per_row <= block_size_x * rows_in_turn <= 512 * threads_per_row",
    "window_columns == 0 or row_order == 'neighbouring'",
    "window_columns == 0 or block_size_x * rows_in_turn >= 64 * threads_per_row",
    "4 <= vector * unroll_reads * vectors_at_a_time <= 32",
    "threads_per_row * vector * unroll_reads <= 64",
]


def tune_kernel_arguments(rows: int = 262144, values_per_row: int = 64) -> dict:
    """Keyword arguments of ``tune_kernel`` for a matrix with so many rows, this long on average."""
    rng = np.random.default_rng(0)
    starts, columns, values = sparse_matrix(rng, rows, values_per_row)
    vectors = rng.random((rows, VECTORS), dtype=np.float32) + np.float32(0.5)
    return {
        "kernel_name": "sparse_matvec",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (VECTORS, rows),
        "grid_div_x": ["vectors_at_a_time"],
        "grid_div_y": ["block_size_x // threads_per_row", "rows_in_turn"],
        "arguments": [
            np.zeros((rows, VECTORS), dtype=np.float32),
            values,
            columns,
            starts,
            vectors,
            np.int32(rows),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(starts, columns, values, vectors), *(None for _ in range(5))],
        "verify": close_enough,
        "lang": "CUDA",
    }


def sparse_matrix(
    rng: np.random.Generator, rows: int, values_per_row: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where rows start, the columns of their values, and the values: zeros pad rows to fours."""
    lengths = rng.lognormal(sigma=0.8, size=rows) * np.linspace(0.5, 1.5, rows)
    lengths *= values_per_row / lengths.mean()
    lengths = np.clip(lengths, 1, 12 * values_per_row).astype(np.int32)
    padded = (lengths + 3) // 4 * 4
    starts = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(padded, out=starts[1:])
    count = starts[-1]
    # Of each stored value: its row, and its place there.
    row = np.repeat(np.arange(rows, dtype=np.int32), padded)
    place = np.arange(count, dtype=np.int32) - np.repeat(starts[:-1], padded)
    length = np.repeat(lengths, padded)
    near = row + rng.integers(-BAND // 2, BAND // 2, size=count, dtype=np.int32)
    far = rng.integers(rows, size=count, dtype=np.int32)
    columns = np.where(2 * place < length, np.clip(near, 0, rows - 1), far)
    values = rng.random(count, dtype=np.float32) + np.float32(0.5)
    values[place >= length] = 0
    return starts, columns, values


def reference(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """The products, in double precision."""
    products = np.empty((starts.size - 1, VECTORS))
    for v in range(VECTORS):
        elements = vectors[:, v].astype(np.float64)
        products[:, v] = np.add.reduceat(values * elements[columns], starts[:-1])
    return products


def close_enough(answer: list, result: list) -> bool:
    """The largest relative error of an element; nothing cancels out, all terms being positive."""
    return bool(np.abs(result[0] / answer[0] - 1).max() < 1e-4)
