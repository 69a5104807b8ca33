"""Helion kernels: a grid of the space, through the engine."""
