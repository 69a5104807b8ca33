"""The command line, in this process: most of a short command's time is a new process's imports.

A command must also work as a process: `process` runs one, and each command has a test that uses it.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

from llamea_gpu.cli import main

Done = subprocess.CompletedProcess[str]
COMMAND = (sys.executable, "-m", "llamea_gpu")


def llamea(*arguments: object, status: int | tuple[int, ...] = 0, cwd: Path | None = None) -> Done:
    """What ``llamea-gpu ARGUMENTS`` prints, less what its child processes write themselves.

    An exit status other than ``status``, one or several, is a failed assertion.
    """
    argv = ["llamea-gpu", *map(str, arguments)]
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    returned: object = 0
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        _working_directory(cwd or Path.cwd()),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # pytest's make errors of them
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            main()
        except SystemExit as ended:
            returned = ended.code or 0
    texts = (stream.buffer.getvalue().decode() for stream in streams)
    return _checked(subprocess.CompletedProcess(argv, int(str(returned)), *texts), status)


def process(*arguments: object, status: int | tuple[int, ...] = 0, cwd: Path | None = None) -> Done:
    """The same as a process of its own, with all that its children write."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)
    return _checked(done, status)


@contextlib.contextmanager
def _working_directory(folder: Path):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _checked(done: Done, status: int | tuple[int, ...]) -> Done:
    allowed = status if isinstance(status, tuple) else (status,)
    assert done.returncode in allowed, done.stdout + done.stderr
    return done
