"""Runs a candidate on a task in a hardened child process that never holds a measurement.

    host    owns the measurements, answers rows with costs over a socket (`pool`, `serving`)
    zygote  a clean ``exec``: libraries and spaces, no measurements, no secrets (`zygote`)
    child   one fork a run: hardened, then handed the candidate (`hardening`, `child`)

Names are imported when first used, so that the zygote, which lives in this package too, never loads
the host's half.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamea_gpu.sandbox.diagnosis import diagnose
    from llamea_gpu.sandbox.jobs import Job, Limits
    from llamea_gpu.sandbox.pool import Sandbox
    from llamea_gpu.sandbox.report import AttackVerdict, Costs, Layer, LevelReport, SandboxReport

_HOMES = {
    "AttackVerdict": "report",
    "Costs": "report",
    "Job": "jobs",
    "Layer": "report",
    "LevelReport": "report",
    "Limits": "jobs",
    "Sandbox": "pool",
    "SandboxReport": "report",
    "diagnose": "diagnosis",
}

__all__ = [
    "AttackVerdict",
    "Costs",
    "Job",
    "Layer",
    "LevelReport",
    "Limits",
    "Sandbox",
    "SandboxReport",
    "diagnose",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
