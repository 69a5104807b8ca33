"""A small cloud with every kind of row, the same as JSON lines, and parts of those that ship."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.spaces.catalogue import load_cloud
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats import export_cloud
from llamea_gpu.spaces.recording import STATUSES, RecordingInfo

NAN = math.nan


def small_cloud(**changed: Any) -> Cloud:
    """Seven measurements of three parameters in two runs; some fields given anew."""
    fields: dict[str, Any] = {
        "info": RecordingInfo(
            name="toy-64",
            kernel="toy",
            device="NVIDIA H200",
            framework="helion 1.5.0",
            kernel_source="def toy(): ...\n",
            arguments=({"shape": [64], "dtype": "torch.float32"},),
            default_configuration={"block_sizes[0]": 32, "num_warps": 4, "pid_type": "flat"},
            references_ms={"torch": 0.5},
            parallel_workers=15,
            provenance={"note": "über"},
        ),
        "script": "toy",
        "shape": "medium",
        "names": ("block_sizes[0]", "num_warps", "pid_type"),
        "values": ((16, 32, 64), (4, 8), ("flat", "persistent", None)),
        "ordinal": (True, True, False),
        "default": (1, 0, 0),
        "starts": ((1, 0, 0), (2, 1, 0)),
        "runs": ({"default_ms": "1.0"}, {"default_ms": "1.01"}),
        "configurations": [
            [1, 0, 0],
            [2, 1, 0],
            [0, 0, 1],
            [1, 0, 0],
            [2, 1, 1],
            [2, 1, 2],
            [1, 0, 0],
        ],
        "statuses": [0, 0, STATUSES.index("timeout"), 0, 0, 1, 0],
        "times_ms": [1.0, 0.5, NAN, 1.02, 0.51, NAN, 1.01],
        "low_ms": [0.9, NAN, NAN, 1.0, 0.51, NAN, 1.0],
        "high_ms": [1.1, NAN, NAN, 1.1, 0.52, NAN, 1.02],
        "compile_s": [2.0, 1.0, 12.0, 0.1, 0.2, 3.0, 0.0],
        "benchmark_s": [0.1, 0.2, 0.0, 0.1, 0.1, 0.0, 0.1],
        "control_ms": [NAN, 1.0, NAN, NAN, NAN, NAN, 1.03],
        "source": ["aa", "bb", "", "aa", "bb", "", "aa"],
        "how": ["start", "start", "random", "step", "cross", "generated:x", "start"],
        "run": [0, 0, 0, 0, 0, 1, 1],
        "at_s": [3.0, 3.5, 4.0, 5.0, 6.0, 2.0, 2.5],
    }
    arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in (fields | changed).items()}
    return Cloud(**arrays)


def same_cloud(a: Cloud, b: Cloud) -> bool:
    """Whether two clouds are equal to the last bit, types of values included."""
    pairs = [(getattr(a, name), getattr(b, name)) for name in Cloud.__dataclass_fields__]
    return all(
        np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        if isinstance(x, np.ndarray)
        else repr(x) == repr(y)
        for x, y in pairs
    )


def small_part(name: str, kept: str, folder: Path) -> None:
    """Some 200 measurements of a real kernel's whole ConfigSpec: a model fits them quickly."""
    cloud = load_cloud(f"clouds/helion/{name}")
    rows = [tuple(row) for row in cloud.configurations.tolist()]
    stride = len(cloud) // 200
    best = int(np.nanargmin(np.where(cloud.ok, cloud.times_ms, np.nan)))
    keep = [
        row for row, c in enumerate(rows) if row % stride == 0 or row == best or c in cloud.starts
    ]
    columns = (
        *("configurations", "statuses", "times_ms", "low_ms", "high_ms", "compile_s"),
        *("benchmark_s", "control_ms", "source", "how", "run", "at_s"),
    )
    part = replace(
        cloud,
        info=replace(cloud.info, name=kept),
        **{column: getattr(cloud, column)[keep] for column in columns},
    )
    export_cloud(part, folder / f"{kept}.cloud.parquet")
