"""Helion: tuning live kernels with our optimizers, recording them, exporting to them."""
