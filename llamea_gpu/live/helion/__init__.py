"""Helion: tuning live kernels with our optimizers, recording them, exporting to them."""

import os

from llamea_gpu.live.helion.registration import autotuner, register

# PyTorch's question whether there is a GPU otherwise initialises the driver, and a process that
# was forked after that cannot use it: see `llamea_gpu.engine.early`.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

__all__ = ["autotuner", "register"]
