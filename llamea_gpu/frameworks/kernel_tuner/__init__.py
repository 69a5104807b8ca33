"""Kernel Tuner's kernels: scripts."""
