"""Helion: tuning live kernels with our optimizers, recording them, exporting to them."""

from llamea_gpu.live.helion.registration import autotuner, register

__all__ = ["autotuner", "register"]
