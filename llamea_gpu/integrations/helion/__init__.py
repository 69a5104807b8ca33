"""Helion: tuning live kernels with our optimizers, recording them, exporting to them."""

from llamea_gpu.integrations.helion.live import autotuner, register

__all__ = ["autotuner", "register"]
