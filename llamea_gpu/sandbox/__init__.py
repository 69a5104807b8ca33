"""Runs a candidate on a task in a hardened child process; costs, budget, clock and trace stay here.

    host  (`pool`, `serving`)      owns the measurements; answers rows with costs over a socket
    zygote (`zygote`)              a clean ``exec``: numpy and the space, no measurements, no secrets
    child  (`child`, `hardening`)  one fork a run: hardened first, then handed the candidate's source

Names are imported when first used, so that the zygote, which lives in this package too, never loads
the host's half.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamea_gpu.sandbox.jobs import Job, Limits
    from llamea_gpu.sandbox.pool import Sandbox, diagnose
    from llamea_gpu.sandbox.report import AttackVerdict, Layer, LevelReport, SandboxReport

_HOMES = {
    "AttackVerdict": "report",
    "Job": "jobs",
    "Layer": "report",
    "LevelReport": "report",
    "Limits": "jobs",
    "Sandbox": "pool",
    "SandboxReport": "report",
    "diagnose": "pool",
}

__all__ = [
    "AttackVerdict",
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
