"""Searchers side by side on recordings: plan, runs, results in a folder, and what they show."""

from llamea_gpu.bench.execution import make_plan, run_bench
from llamea_gpu.bench.plan import BenchSettings
from llamea_gpu.bench.results import BenchResults

__all__ = ["BenchResults", "BenchSettings", "make_plan", "run_bench"]
