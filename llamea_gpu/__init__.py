"""LLM-written metaheuristics for GPU-kernel autotuning: generate, score, promote, export."""

__version__ = "0.1.0"
