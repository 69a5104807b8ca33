"""Recordings of live kernels."""
