"""An optimizer as one file that does not need llamea_gpu."""
