"""LLM-written metaheuristics for GPU-kernel autotuning: generate, score, promote, export."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("llamea-gpu")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
