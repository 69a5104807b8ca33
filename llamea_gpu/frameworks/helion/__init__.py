"""Helion's kernels: scripts, configuration spaces, the two stages, spaces without a GPU."""
