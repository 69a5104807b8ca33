"""Searchers: everything that tunes under one contract (`llamea_gpu.contract`)."""
