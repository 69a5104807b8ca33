"""Takes from a worker process what a program that is not trusted could do harm with.

What it does: the parity checks run a generated optimizer inside Kernel Tuner and Helion, which the
sandbox does not hold. Their worker imports everything first; `confine` then denies it files,
sockets, processes and threads, with the sandbox's own Landlock ruleset and seccomp filter.

What it does not do: give the process namespaces or another user, or verify itself by attacks, as
the sandbox does. It holds no secrets: whoever starts it leaves the environment empty.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llamea_gpu.errors import LlameaGpuError, SearcherError
from llamea_gpu.sandbox import hardening, seccomp
from llamea_gpu.sandbox.preload import library_for, load

_MORE_MEMORY_BYTES = 2 << 30
_CPU_S = 120
_WALL_S = 600.0
_SHOWN_CHARACTERS = 400
_SAID_CHARACTERS = 4000
_MARK = "visits: "
# What native code asks of its environment; no keys, no tokens.
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def confine(source: str, *, unsafe: bool = False) -> None:
    """Irreversibly, of this process's one thread; ``source`` says which libraries are needed.

    ``unsafe`` limits memory and CPU time alone.

    Raises:
        LlameaGpuError: seccomp is missing here.
    """
    program = None if unsafe else _filter()  # now: `load` hides every other library
    load(library_for(source))
    with open("/proc/self/statm", encoding="ascii") as file:
        used_bytes = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit_bytes = used_bytes + _MORE_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    if program is None:
        return
    hardening.forbid_tracing()
    hardening.forbid_new_privileges()
    if hardening.landlock_version():
        hardening.enter_landlock(hardening.create_landlock_ruleset())
    hardening.enter_seccomp(program)


def _filter() -> bytes:
    try:
        return seccomp.compile_filter()
    except (ImportError, OSError, RuntimeError) as error:
        raise LlameaGpuError(
            f"a generated program runs in a framework only behind seccomp, but: {error}: install "
            f"libseccomp and pyseccomp, or use a disposable machine and --unsafe-no-sandbox"
        ) from error


def run_worker(
    module: str, job: Mapping[str, object], folder: Path, forms: int = 1
) -> list[list[str]]:
    """What each of the ``forms`` of ``python -m module JOB`` told (`run_forms`), in order.

    ``folder`` is the worker's own: its working directory, home and caches. The environment holds
    none of the caller's secrets.

    Raises:
        SearcherError: it failed, and with what.
    """
    file = folder / "job.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment = {
        **kept,
        **dict.fromkeys(_ONE_THREAD, "1"),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "HOME": str(folder),
        "HELION_SKIP_CACHE": "1",
        "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        "LOKY_MAX_CPU_COUNT": "1",
    }
    command = [sys.executable, "-W", "ignore", "-m", module, str(file)]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_WALL_S
        )
    except subprocess.TimeoutExpired as error:
        raise SearcherError(f"a run must end, but did not in {_WALL_S:g} s") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise SearcherError(f"a run must end in order, but it said: {said[:_SHOWN_CHARACTERS]}")
    told = [_told(line) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if len(told) != forms:
        raise SearcherError(f"{forms} runs must tell their visits once, but told {len(told)} times")
    return told


def run_forms(forms: Sequence[Callable[[], None]]) -> None:
    """In the worker: each of ``forms`` in a fork of its own, one after the other; ends with `tell`.

    What they share is imported once, before. What a program prints goes nowhere.
    """
    for form in forms:
        child = os.fork()
        if not child:
            _keep_outputs()
            try:
                form()
            except BaseException:
                _write(_outputs[1], traceback.format_exc()[-_SAID_CHARACTERS:])
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(1)


def tell(visits: Sequence[str]) -> None:
    """End the process with its result: nothing that a framework does at exit is possible now."""
    _write(_outputs[0], f"\n{_MARK}{json.dumps(list(visits))}\n")
    os._exit(0)


_outputs = [1, 2]  # descriptors of this process's real outputs


def _keep_outputs() -> None:
    """Move the outputs out of a program's way; 1 and 2 are /dev/null from now on."""
    _outputs[:] = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _write(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]


def _told(line: str) -> list[str]:
    try:
        told = json.loads(line.removeprefix(_MARK))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, list) or not all(isinstance(item, str) for item in told):
        raise SearcherError("a run must tell its visits, but told something else")
    return told
