"""Public facts of GPUs, by the name that a framework or a recording gives them.

The table is ``devices.toml``, which names its sources. It does not ask a driver: the GPU of a
recording is seldom here.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from llamea_gpu import toml
from llamea_gpu.contract import DeviceFacts

# A slice of a GPU, and chips that share no more than the name with the desktop's.
_OTHER_CHIPS = frozenset(("mig", "laptop", "mobile", "max"))
_TABLE = Path(__file__).with_name("devices.toml")


def find_device(name: str) -> DeviceFacts | None:
    """The facts of the GPU that ``name`` means, such as "NVIDIA A100-PCIE-40GB"; else None."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    if words & _OTHER_CHIPS:
        return None
    fitting = [entry for entry in _entries() if entry[0] <= words]
    return max(fitting, key=lambda entry: len(entry[0]))[1] if fitting else None


@functools.cache
def _entries() -> tuple[tuple[frozenset[str], DeviceFacts], ...]:
    document = toml.loads(_TABLE.read_text("utf-8"))
    return tuple((frozenset(entry["names"]), _facts(entry)) for entry in document["device"])


def _facts(entry: dict[str, Any]) -> DeviceFacts:
    count, unit, warp = entry["units"]
    per_unit, per_block = entry["shared_kib"]
    return DeviceFacts(
        title=entry["title"],
        compute_units=count,
        unit_name=unit,
        warp_size=warp,
        shared_kib_per_unit=per_unit,
        shared_kib_per_block=per_block,
        registers_per_unit=entry["registers"],
        l2_mib=entry["l2_mib"],
        bandwidth_gb_s=entry.get("bandwidth_gb_s"),
        peak_tflops=entry["peak_tflops"],
    )
