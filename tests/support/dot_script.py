"""A kernel script in C: real compilers, real crashes, no GPU."""

from __future__ import annotations

from pathlib import Path

SCRIPT = '''
import numpy as np

SOURCE = r"""
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
extern "C" float dot(float *out, float *a, float *b, int n) {{
#if unroll == 3
    #error "unroll must be a power of two"
#endif
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    float sums[unroll] = {{0}};
    for (int i = 0; i < n; i += unroll)
        for (int j = 0; j < unroll; j++) sums[j] += a[i + j] * b[i + j];
    float total = 0;
    for (int j = 0; j < unroll; j++) total += sums[j];
    out[0] = total + (fault == 1);
    if (fault == 2) abort();
    if (fault == 3) sleep(60);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - start.tv_sec) * 1e3f + (end.tv_nsec - start.tv_nsec) * 1e-6f + 1e-6f;
}}
"""
INFO = {{"name": "dot-1200", "note": "a dot product",
         "default_configuration": {{"unroll": 1, "width": 1, "fault": 0}}}}


def tune_kernel_arguments(count=1200):
    a, b = np.random.default_rng(0).random((2, count), dtype=np.float32)
    return dict(
        kernel_name="dot", kernel_source=SOURCE, problem_size=count, lang="C",
        arguments=[np.zeros(1, dtype=np.float32), a, b, np.int32(count)],
        tune_params={{"unroll": {unroll}, "width": {width}, "fault": {fault}}},
        restrictions=["width <= unroll", "fault * (width - 1) == 0"],
        answer=[np.array([a @ b]), None, None, None], atol=1e-2,
    )
'''


def write_dot_script(
    folder: Path,
    unroll: tuple[int, ...] = (1, 2, 3, 4),
    width: tuple[int, ...] = (1, 2),
    fault: tuple[int, ...] = (0, 1, 2),
) -> Path:
    path = folder / "dot.py"
    text = SCRIPT.format(unroll=list(unroll), width=list(width), fault=list(fault))
    path.write_text(text)
    return path
