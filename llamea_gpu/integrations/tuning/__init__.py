"""Tuning one kernel with any searcher: a live one of either framework, or a recording."""

from llamea_gpu.integrations.tuning.recordings import tune_recording
from llamea_gpu.integrations.tuning.result import (
    Measured,
    TuneProgress,
    TuneSettings,
    TuningResult,
)
from llamea_gpu.integrations.tuning.scripts import framework_of, tune_script

__all__ = [
    "Measured",
    "TuneProgress",
    "TuneSettings",
    "TuningResult",
    "framework_of",
    "tune_recording",
    "tune_script",
]
