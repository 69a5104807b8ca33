"""Runs any searcher on a task: untrusted source in the sandbox, libraries in worker processes."""

from llamea_gpu.runner._base import BaseRunner
from llamea_gpu.runner.pool import LIBRARY_LIMITS, Runner

__all__ = ["LIBRARY_LIMITS", "BaseRunner", "Runner"]
