"""Search spaces and recordings: arrays, file formats, features, and the catalogue of what is there.

The sandboxed child needs :mod:`llamea_gpu.spaces.space` and never pays for a file format: nothing
is imported here.
"""
