"""Tuning one kernel with any searcher: a live one of either framework, or a recording."""

from llamea_gpu.live.recordings import tune_recording
from llamea_gpu.live.result import (
    Measured,
    TuneProgress,
    TuneSettings,
    TuningResult,
)
from llamea_gpu.live.scripts import framework_of, tune_script, tune_script_shapes
from llamea_gpu.live.shapes import ShapesResult

__all__ = [
    "Measured",
    "ShapesResult",
    "TuneProgress",
    "TuneSettings",
    "TuningResult",
    "framework_of",
    "tune_recording",
    "tune_script",
    "tune_script_shapes",
]
