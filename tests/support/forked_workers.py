"""Workers of pytest-xdist as forks of one process that has imported what takes long to import.

Each of them imports PyTorch, Helion and Kernel Tuner, for it collects all tests. Here one process
does (`python forked_workers.py SOCKET`). In the place of an interpreter xdist is given `stand_in`:
a process that hands its command and its standard streams to a fork, and lives as long as that.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# Not those that bring plugins of pytest, such as openai with anyio: pytest rewrites these.
_MODULES = (
    *("helion.autotuner", "kernel_tuner.interface", "ray", "optuna", "pandas", "plotly.io"),
    *("pyarrow.parquet", "scipy.interpolate", "scipy.stats", "sklearn.ensemble"),
)
_STAND_IN = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as fork:
    fork.connect(sys.argv[1])
    socket.send_fds(fork, [sys.argv[-1].encode()], [0, 1, 2])
    for stream in (0, 1):  # their ends are to be the fork's
        os.close(stream)
    fork.recv(1)
"""


@contextlib.contextmanager
def stand_in() -> Iterator[str]:
    """The command, for a shell, of an interpreter that is a fork; meanwhile it can be used."""
    with tempfile.TemporaryDirectory() as folder:
        address, client = Path(folder) / "socket", Path(folder) / "stand_in.py"
        client.write_text(_STAND_IN, encoding="utf-8")
        command = [sys.executable, __file__, str(address)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield f"'{sys.executable}' -S -E '{client}' '{address}'"
            server.stdin.close()


def _serve(address: str) -> None:
    """Until whoever started this process closes its input."""
    del sys.path[0]  # where this file is
    gc.disable()  # a fifth of the time would go into looking for garbage
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in _MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest ends this process
    forks = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
            connection, _ = listening.accept()
            code, streams, _, _ = socket.recv_fds(connection, 4096, 3)
            pid = os.fork()
            if pid == 0:
                listening.close()  # but not the connection: it says when this process ends
                _become(code.decode(), streams)
            forks.append(pid)
            connection.close()
            for stream in streams:
                os.close(stream)
    for pid in forks:
        os.kill(pid, signal.SIGKILL)  # not waited for yet, so it is one of ours, at most stuck
        os.waitpid(pid, 0)


def _become(code: str, streams: list[int]) -> None:
    """``python -c code`` with those standard streams."""
    from llamea_gpu.engine.template import own_locks

    own_locks()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    sys.argv[:] = ["-c"]
    sys.modules["__main__"] = ModuleType("__main__")
    exec(code, vars(sys.modules["__main__"]))
    sys.exit()


if __name__ == "__main__":
    _serve(sys.argv[1])
