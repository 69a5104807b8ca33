"""What T4 files and Kernel Tuner's caches share: words for failures, and our exact status."""

from __future__ import annotations

from llamea_gpu.spaces.formats._base import Fields
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES

# Kernel Tuner's error classes, written as text where a time would stand.
ERROR_WORDS = {
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "runtime_error",
    "ErrorConfig": "error",
}
INVALID_WORD = "InvalidConfig"
# What old versions of Kernel Tuner wrote as the time of a configuration that failed.
KERNEL_TUNER_ERROR_MS = 1e20
# Both formats have fewer words than STATUSES; an export adds the exact one under this key.
STATUS_KEY = "llamea_gpu_status"


def error_word(status: str) -> str:
    """The error class that stands for a failed status."""
    return "CompilationFailedConfig" if status == "compile_error" else "RuntimeFailedConfig"


def exact_status(fields: Fields, status: str) -> str:
    """The status that an export noted, else ``status``.

    Raises:
        SpaceFormatError: the noted one is unknown or contradicts whether it failed.
    """
    noted = fields.get(STATUS_KEY)
    if noted is None:
        return status
    if noted not in STATUSES or (noted == "ok") != (status == "ok"):
        raise fields.error(
            f"{STATUS_KEY!r} must be a status that fits {status!r}, not {quoted(noted)}"
        )
    return str(noted)
