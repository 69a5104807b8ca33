"""Search spaces and recordings: arrays, file formats, features, and the catalogue of what is there.

Names are imported when first used, so that the sandboxed child, which needs only
:mod:`llamea_gpu.spaces.space`, never pays for a file format.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamea_gpu.spaces.catalogue import (
        CatalogueEntry,
        list_spaces,
        load_space,
        load_spaces,
        search_path_from_environment,
    )
    from llamea_gpu.spaces.cloud import Cloud
    from llamea_gpu.spaces.features import SpaceFeatures, compute_features
    from llamea_gpu.spaces.formats import (
        export_cloud,
        export_recording,
        import_cloud,
        import_recording,
    )
    from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
    from llamea_gpu.spaces.space import Configuration, SearchSpace, SpaceView, Value

_HOMES = {
    "CatalogueEntry": "catalogue",
    "Cloud": "cloud",
    "Configuration": "space",
    "Recording": "recording",
    "RecordingInfo": "recording",
    "STATUSES": "recording",
    "SearchSpace": "space",
    "SpaceFeatures": "features",
    "SpaceView": "space",
    "Value": "space",
    "compute_features": "features",
    "export_cloud": "formats",
    "export_recording": "formats",
    "import_cloud": "formats",
    "import_recording": "formats",
    "list_spaces": "catalogue",
    "load_space": "catalogue",
    "load_spaces": "catalogue",
    "search_path_from_environment": "catalogue",
}

__all__ = [
    "STATUSES",
    "CatalogueEntry",
    "Cloud",
    "Configuration",
    "Recording",
    "RecordingInfo",
    "SearchSpace",
    "SpaceFeatures",
    "SpaceView",
    "Value",
    "compute_features",
    "export_cloud",
    "export_recording",
    "import_cloud",
    "import_recording",
    "list_spaces",
    "load_space",
    "load_spaces",
    "search_path_from_environment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
