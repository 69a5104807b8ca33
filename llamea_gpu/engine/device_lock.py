"""One recorder at a time measures on a GPU: the file that says whose turn it is.

All recorders of a user share it, of whatever framework. The lock goes with the process that holds
it, however that ends. It keeps away nobody but recorders.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from llamea_gpu.errors import RecordingError


def device_lock(device: int) -> Path:
    """The file to lock (``flock``) before checking or timing on this device, as CUDA counts."""
    folder = Path(tempfile.gettempdir()) / f"llamea-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    number = visible[device].strip() if device < len(visible) else ""
    return folder / f"device-{number or device}"


@contextmanager
def devices_held(devices: Sequence[int]) -> Iterator[None]:
    """Hold all of these devices' locks.

    Raises:
        RecordingError: another recorder measures on one of them.
    """
    with ExitStack() as stack:
        for device in devices:
            file = stack.enter_context(device_lock(device).open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RecordingError(
                    f"one recorder may measure on a GPU, but another one is at GPU {device}: wait "
                    f"for it, or name other devices"
                ) from error
        yield
