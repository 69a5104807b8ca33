"""What NVIDIA's tools say about a GPU, and its driver about this process. Sets nothing.

``nvidia-smi`` is asked for driver, clocks and power limit. The driver's library is never loaded or
initialised here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Any

_LIBRARY = "libcuda.so.1"
_QUERY = {
    "name": "gpu",
    "driver_version": "driver",
    "compute_cap": "compute_capability",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "power.limit": "power_limit_w",
    "temperature.gpu": "temperature_c",
}


def gpu_facts(gpu: str | int) -> dict[str, str]:
    """Facts about the GPU with this index or PCI bus id; empty where nvidia-smi has none.

    Clocks and temperature (``sm_clock_mhz``, ...) are those of the moment.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(  # noqa: S603 - a fixed program, no shell
            [*command, "-i", str(gpu)], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in completed.stdout.strip().split(",")]
    if len(cells) != len(_QUERY):
        return {}
    return {
        key: cell
        for key, cell in zip(_QUERY.values(), cells, strict=True)
        if not cell.startswith("[")  # [N/A], [Not Supported]
    }


def cuda_in_use() -> bool:
    """Whether this process has initialised CUDA: its forks cannot use it then."""
    driver = _loaded_driver()
    return driver is not None and driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0


def free_memory() -> int | None:
    """Free bytes of the GPU that this thread uses; None where it uses none."""
    driver = _loaded_driver()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if driver is None or driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0:
        return None
    return free.value


def _loaded_driver() -> Any:
    """The driver's library, if this process has loaded it."""
    try:
        return ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):  # AttributeError: another system's Python
        return None
