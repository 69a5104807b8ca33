"""Measuring processes: hands out configurations, stops what hangs, restarts what crashes.

It speaks the protocol of :mod:`llamea_gpu.recording.kernel_tuner.worker` and knows nothing of
journals and recordings.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

from llamea_gpu.engine.device_lock import device_lock
from llamea_gpu.errors import RecordingError
from llamea_gpu.recording.kernel_tuner.settings import RecordSettings
from llamea_gpu.recording.kernel_tuner.worker import WAITING, Order, order_line

Configuration = tuple[int, ...]
# A kernel may crash for some configurations; when all do, something else is wrong.
_MAX_CRASHES_IN_A_ROW = 20
_DEVICE_ANSWERED = ("ok", "incorrect", "runtime_error")
_START_S = 600.0
_READ_BYTES = 1 << 16


class _Process:
    """One measuring process and what it is at."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.facts: Mapping[str, Any] | None = None  # its first message, once it is ready
        self.running: Configuration | None = None
        self._phase = ""
        self._seconds: dict[str, float] = {}
        self._phase_since = self._since = monotonic()
        self._partial = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        # What compilers leave behind when the process is killed goes with this folder.
        self._scratch = tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "llamea_gpu.recording.kernel_tuner.worker"],
            env={**os.environ, "TMPDIR": self._scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C is for the parent, which ends in order
        )
        self._write(order_line(order))

    @property
    def pipe(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def deadline(self) -> float:
        """When what it is at has taken too long; never while it waits for the device."""
        if self.facts is None:
            return self._since + _START_S
        busy = self.running is not None and self._phase != WAITING
        return self._since + self.order.timeout_s if busy else math.inf

    def begin(self, configuration: Configuration) -> None:
        """Hand it a configuration; before it is ready, too."""
        self.running, self._phase, self._seconds = configuration, "", {}
        if self.facts is not None:
            self._since = monotonic()
        self._write(json.dumps(configuration))

    def hear(self) -> dict[str, Any] | None:
        """Read what it wrote: the result of its configuration, or None as long as there is none.

        To be called when its pipe is readable.

        Raises:
            RecordingError: it says that it cannot measure, or ended before it was ready.
        """
        data = self.pipe.read(_READ_BYTES)
        if not data:
            if self.facts is None:
                raise RecordingError(f"measuring must start, but ended: {self._last_words()}")
            return {**self.interrupted("runtime_error", self._last_words()), "broken": True}
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            kind = message.pop("kind")
            if kind == "error":
                raise RecordingError(message["message"])
            if kind == "space":
                self.facts, self._since = message, monotonic()
            elif kind == "phase":
                self._enter(message["phase"])
            else:
                result: dict[str, Any] = message
                return result  # the last thing it writes until it is handed another
        return None

    def interrupted(self, status: str, message: str) -> dict[str, Any]:
        """The result of a configuration that this process will not report itself."""
        self._enter("")
        return {
            "status": status,
            "time_ms": None,
            "compile_s": self._seconds.get("compile", 0.0),
            "benchmark_s": self._seconds.get("check", 0.0) + self._seconds.get("benchmark", 0.0),
            "spread": None,
            "message": message,
        }

    def stop(self) -> None:
        """End it and remove what it leaves behind."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._scratch.cleanup()

    def _enter(self, phase: str) -> None:
        now = monotonic()
        if self._phase == WAITING:
            self._since += now - self._phase_since
        elif self._phase:
            self._seconds[self._phase] = now - self._phase_since
        self._phase, self._phase_since = phase, now

    def _write(self, line: str) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which reading from it will show
            self._child.stdin.write(line.encode() + b"\n")

    def _last_words(self) -> str:
        """The end of what it wrote to standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=10)
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 500))
        return self._log.read().decode(errors="replace").strip()


class MeasuringPool:
    """The measuring processes of all devices. A context manager: leaving it ends them."""

    def __init__(self, script: Path, settings: RecordSettings) -> None:
        self._script = script
        self._settings = settings
        self._processes: list[_Process] = []

    def __enter__(self) -> MeasuringPool:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stop()
        self._processes = []

    def start(self) -> Mapping[str, Any]:
        """Start all and return what the first says about space, kernel and device.

        Raises:
            RecordingError: one does not start, or they differ in device or space.
        """
        for device in self._settings.devices:
            for _ in range(self._settings.compilers):
                self._processes.append(_Process(self._order(device)))
        while starting := [p for p in self._processes if p.facts is None]:
            for process in self._readable(starting):
                process.hear()
            if any(monotonic() >= process.deadline for process in starting):
                raise RecordingError(
                    f"measuring must start within {_START_S:.0f} s, but did not: make the "
                    f"script's reference faster"
                )
        facts = [process.facts for process in self._processes if process.facts is not None]
        for key in ("device", "names", "values", "configurations"):
            if any(other[key] != facts[0][key] for other in facts):
                raise RecordingError(
                    f"devices that share a recording must be of one kind, but they differ in "
                    f"{key}: name devices that are alike"
                )
        return facts[0]

    def measure(
        self, configurations: Sequence[Configuration], deadline: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield a result for each configuration as it comes, with its value indices.

        After ``deadline`` (of ``time.monotonic``) no further one is begun. A crash is believed once
        another configuration has run after it: a device that is gone is no fault of a kernel.

        Raises:
            RecordingError: twenty crashes in a row, or a process that does not start again.
        """
        waiting = iter(configurations)
        crashed: list[dict[str, Any]] = []  # since something ran

        def hand_out(process: _Process) -> None:
            over = deadline is not None and monotonic() >= deadline
            following = None if over else next(waiting, None)
            if following is None:
                process.running = None
            else:
                process.begin(following)

        for process in self._processes:
            hand_out(process)
        while busy := [p for p in self._processes if p.running is not None]:
            for process, result in self._finished(busy):
                broken = result.pop("broken")
                found = {"configuration": process.running, **result}
                if broken and result["status"] != "timeout":
                    crashed.append(found)
                    _refuse_crashes(crashed)
                else:
                    if result["status"] in _DEVICE_ANSWERED:
                        yield from crashed
                        crashed.clear()
                    yield found
                hand_out(self._replaced(process) if broken else process)
        if next(waiting, None) is None:  # otherwise the next call tries them again
            yield from crashed

    def _finished(self, busy: Sequence[_Process]) -> Iterator[tuple[_Process, dict[str, Any]]]:
        """Wait until something happens; yield what is finished."""
        readable = self._readable(busy)
        for process in busy:
            result: dict[str, Any] | None = None
            if process in readable:
                result = process.hear()
            elif monotonic() >= process.deadline:
                limit = f"over {process.order.timeout_s} s"
                result = {**process.interrupted("timeout", limit), "broken": True}
            if result is not None:
                yield process, result

    def _readable(self, processes: Sequence[_Process]) -> list[_Process]:
        """Those with something to read; none when the first deadline passes before that."""
        until = min(process.deadline for process in processes)
        left_s = None if until == math.inf else max(0.0, until - monotonic())
        pipes, _, _ = select.select([process.pipe for process in processes], [], [], left_s)
        return [process for process in processes if process.pipe in pipes]

    def _replaced(self, process: _Process) -> _Process:
        """A new process in the place of one that is of no more use."""
        process.stop()
        index = self._processes.index(process)
        self._processes[index] = _Process(process.order)
        return self._processes[index]

    def _order(self, device: int) -> Order:
        return Order(
            script=str(self._script.absolute()),
            lock=str(device_lock(device)),
            device=device,
            backend=self._settings.backend,
            iterations=self._settings.iterations,
            timeout_s=self._settings.timeout_s,
            sizes=self._settings.sizes,
        )


def _refuse_crashes(crashed: Sequence[Mapping[str, Any]]) -> None:
    if len(crashed) >= _MAX_CRASHES_IN_A_ROW:
        raise RecordingError(
            f"a kernel must run for some configurations, but the last {len(crashed)} crashed: "
            f"{crashed[-1]['message']}"
        )
