"""Kernel Tuner: our optimizers in it, recordings from it, files exported to it."""
