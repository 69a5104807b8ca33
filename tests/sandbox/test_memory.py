"""No page that can be written can be run, and none is shared. Controls: the same left undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llamea_gpu.errors import SandboxError
from llamea_gpu.sandbox import levels
from llamea_gpu.sandbox.launch import find_installation
from llamea_gpu.sandbox.levels import LEVELS, Ingredients
from llamea_gpu.sandbox.process import ZygoteProcess

# A callback's memory becomes a copy of getpid, which is called.
_WRITE_AND_RUN = """
import ctypes, mmap, os, sys
from llamea_gpu.sandbox import hardening
callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: -1)
{before}
if "forbid" in sys.argv:
    hardening.forbid_executable_data(os.open("/proc", os.O_RDONLY))
ctypes.memmove(ctypes.cast(callback, ctypes.c_void_p), ctypes.CDLL(None).getpid, 32)
print(callback() == os.getpid())
"""


def _write_and_run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = _WRITE_AND_RUN.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_code_that_was_written_runs_without_the_defence() -> None:
    assert _write_and_run().stdout == "True\n"


def test_a_page_that_libffi_mapped_writable_and_executable_is_data_only() -> None:
    done = _write_and_run("forbid")
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == ""


@pytest.mark.parametrize(("before", "stops"), [("page = mmap.mmap(-1, 4096)", True), ("", False)])
def test_memory_shared_with_others_is_refused(before: str, stops: bool) -> None:
    done = _write_and_run("forbid", before=before)
    assert ("no memory may be writable and also executable or shared" in done.stderr) == stops


def test_a_zygote_with_shared_memory_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    command = levels.plain_command

    def sharing(*arguments: object) -> list[str]:
        words = command(*arguments)  # type: ignore[arg-type]
        words[words.index("-c") + 1] = (
            "import mmap; page = mmap.mmap(-1, 4096); " + words[words.index("-c") + 1]
        )
        return words

    monkeypatch.setattr(levels, "plain_command", sharing)
    with pytest.raises(SandboxError, match=r"executable or shared, but 1 mappings are \(rw-s\)"):
        Ingredients.find(find_installation()).start(LEVELS[-1], "numpy")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may read the maps of another user")
@pytest.mark.parametrize("level", [3, 2, 1])
@pytest.mark.parametrize("library", ["numpy", "sklearn"])
def test_the_zygotes_own_maps_say_so(
    level: int, library: str, zygote_of: Callable[[int, str], ZygoteProcess]
) -> None:
    pid = zygote_of(level, library).pid
    maps = "".join(Path(f"/proc/{member}/maps").read_text() for member in _family(pid))
    assert "numpy" in maps
    modes = {line.split()[1] for line in maps.splitlines()}
    assert not [mode for mode in modes if "w" in mode and ("x" in mode or "s" in mode)]


def _family(pid: int) -> list[int]:
    children = [
        int(child)
        for task in os.listdir(f"/proc/{pid}/task")
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    ]
    return [pid, *(inner for child in children for inner in _family(child))]
