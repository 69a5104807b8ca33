"""Kernel Tuner kernels: all configurations, or a sample."""
