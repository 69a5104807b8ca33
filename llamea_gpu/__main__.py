"""``python -m llamea_gpu``."""

from llamea_gpu.cli import main

main()
