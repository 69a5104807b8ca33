"""Runs any searcher on a task: untrusted source in the sandbox, libraries in worker processes."""

from llamea_gpu.runner.pool import Runner

__all__ = ["Runner"]
