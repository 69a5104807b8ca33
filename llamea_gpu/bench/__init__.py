"""Held-out comparisons of searchers on recordings."""

from llamea_gpu.bench.comparison import Standing, compare

__all__ = ["Standing", "compare"]
