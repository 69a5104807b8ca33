"""What ``nvidia-smi`` says about a GPU: driver, clocks, power limit. It never sets anything."""

from __future__ import annotations

import shutil
import subprocess

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
        done = subprocess.run(  # noqa: S603 - a fixed program, no shell
            [*command, "-i", str(gpu)], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in done.stdout.strip().split(",")]
    if len(cells) != len(_QUERY):
        return {}
    return {
        key: cell
        for key, cell in zip(_QUERY.values(), cells, strict=True)
        if not cell.startswith("[")  # [N/A], [Not Supported]
    }
