"""Out-of-place transpose of a 3072 x 4096 float32 matrix.

Tuning parameters:

- ``block_size_x``: threads of a block.
- ``tile_x``, ``tile_y``: columns and rows of the input that a block turns at a time.
- ``vector_in``, ``vector_out``: floats that one load and one store take.
- ``exchange``: how rows become columns: each thread turns patches of ``vector_out`` rows and
  ``vector_in`` columns ``in_registers``, or the tile passes through shared memory, against bank
  conflicts with rows one float longer (``padded_shared``, which takes float by float what
  ``vector_in`` loaded at once) or with the vectors of each row permuted (``swizzled_shared``).
- ``streaming``: loads and stores ask the caches to keep neither matrix.
- ``walk``: blocks take tiles ``along_rows`` of the input, ``along_columns``, or on ``diagonal``
  lines, where neighbours share neither rows nor columns.
- ``tiles_per_block``: tiles that a block takes one after another; the next is loaded meanwhile.

Constraints: 8 to 32 floats a thread, in whole patches; tiles of at most 8192 floats, which keeps
them within 48 KiB of shared memory; patches and permuted vectors of more than one float; several
tiles a block only along rows or columns.
"""

from pathlib import Path

import numpy as np

INFO = {
    "name": "transpose-3072x4096",
    "note": "float32 out-of-place transpose, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 256,
        "tile_x": 64,
        "tile_y": 32,
        "vector_in": 1,
        "vector_out": 1,
        "exchange": "padded_shared",
        "streaming": 0,
        "walk": "along_rows",
        "tiles_per_block": 1,
    },
}

TUNE_PARAMS = {
    "block_size_x": [128, 256, 512],
    "tile_x": [32, 64, 128],
    "tile_y": [32, 64, 128],
    "vector_in": [1, 4],
    "vector_out": [1, 2, 4],
    "exchange": ["in_registers", "padded_shared", "swizzled_shared"],
    "streaming": [0, 1],
    "walk": ["along_rows", "along_columns", "diagonal"],
    "tiles_per_block": [1, 4],
}

RESTRICTIONS = [
    "8 * block_size_x <= tile_x * tile_y <= 32 * block_size_x",
    "tile_x * tile_y <= 8192",
    "exchange != 'in_registers' or block_size_x * vector_in * vector_out <= tile_x * tile_y",
    "exchange == 'padded_shared' or vector_in * vector_out > 1",
    "tiles_per_block == 1 or walk != 'diagonal'",
]

COMPARED_ROWS = 64  # at a time, so that they stay in the cache


def tune_kernel_arguments(rows: int = 3072, columns: int = 4096) -> dict:
    """Keyword arguments of ``tune_kernel`` for a matrix of this size."""
    matrix = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
    return {
        "kernel_name": "transpose",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": rows * columns,
        "grid_div_x": ["tile_x", "tile_y", "tiles_per_block"],
        "arguments": [
            np.zeros((columns, rows), dtype=np.float32),
            matrix,
            np.int32(rows),
            np.int32(columns),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [np.ascontiguousarray(matrix.T), None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def close_enough(answer: list, result: list) -> bool:
    """The very same numbers; fast."""
    return all(
        np.array_equal(answer[0][i : i + COMPARED_ROWS], result[0][i : i + COMPARED_ROWS])
        for i in range(0, len(answer[0]), COMPARED_ROWS)
    )
