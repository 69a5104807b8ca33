"""Measuring processes, one a device: hands out configurations, stops what hangs, restarts.

It speaks the protocol of :mod:`llamea_gpu.integrations.kernel_tuner.worker` and knows nothing of
journals and recordings.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import IO, Any

from llamea_gpu.errors import RecordingError
from llamea_gpu.integrations.kernel_tuner.worker import Order, order_line

Configuration = tuple[int, ...]
# A kernel may crash for some configurations; when all do, something else is wrong.
_MAX_CRASHES_IN_A_ROW = 20
_START_S = 600.0
_READ_BYTES = 1 << 16


class _Process:
    """One measuring process and what it is at."""

    def __init__(self, order: Order) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        # What compilers leave behind when the process is killed goes with this folder.
        self._scratch = tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "llamea_gpu.integrations.kernel_tuner.worker"],
            env={**os.environ, "TMPDIR": self._scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C is for the parent, which ends in order
        )
        self.order = order
        self._partial = b""
        self.running: Configuration | None = None
        self.phase = ""
        self.seconds: dict[str, float] = {}
        self._phase_since = self._since = monotonic()
        self._write(order_line(order))

    @property
    def pipe(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def deadline(self) -> float:
        """When what it is at has taken too long."""
        return self._since + (_START_S if self.running is None else self.order.timeout_s)

    def begin(self, configuration: Configuration) -> None:
        self.running, self.phase, self.seconds = configuration, "", {}
        self._since = self._phase_since = monotonic()
        self._write(json.dumps(configuration))

    def messages(self) -> list[dict[str, Any]] | None:
        """Whole lines that have come; None at the end of the pipe. Blocks unless readable."""
        data = self.pipe.read(_READ_BYTES)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        found = [json.loads(line) for line in lines]
        for message in found:
            if message["kind"] == "phase":
                self._enter(message["phase"])
        return found

    def interrupted(self, status: str, message: str) -> dict[str, Any]:
        """The result of a configuration that this process will not report."""
        self._enter("")
        return {
            "status": status,
            "time_ms": None,
            "compile_s": self.seconds.get("compile", 0.0),
            "benchmark_s": self.seconds.get("check", 0.0) + self.seconds.get("benchmark", 0.0),
            "spread": None,
            "message": message,
        }

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=10)
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - 2000))
        return self._log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._scratch.cleanup()

    def _enter(self, phase: str) -> None:
        now = monotonic()
        if self.phase:
            self.seconds[self.phase] = now - self._phase_since
        self.phase, self._phase_since = phase, now

    def _write(self, line: str) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which reading from it will show
            self._child.stdin.write(line.encode() + b"\n")


class MeasuringPool:
    """One measuring process for each device. A context manager: leaving it ends them."""

    def __init__(self, order: Order, devices: Sequence[int]) -> None:
        self._orders = [replace(order, device=device) for device in devices]
        self._processes: list[_Process] = []
        self._crashes = 0

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
        self._processes = [_Process(order) for order in self._orders]
        described = [self._described(process) for process in self._processes]
        for key in ("device", "names", "values", "configurations"):
            if any(description[key] != described[0][key] for description in described):
                raise RecordingError(
                    f"devices that share a recording must be of one kind, but they differ in "
                    f"{key}: name devices that are alike"
                )
        return described[0]

    def measure(
        self, configurations: Sequence[Configuration], deadline: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield a result for each configuration as it comes, with its value indices.

        After ``deadline`` (of ``time.monotonic``) no further one is begun.

        Raises:
            RecordingError: twenty crashes in a row, or a process that does not start again.
        """
        waiting = iter(configurations)

        def next_one() -> Configuration | None:
            over = deadline is not None and monotonic() >= deadline
            return None if over else next(waiting, None)

        for index in range(len(self._processes)):
            self._begin(index, next_one())
        while any(process.running is not None for process in self._processes):
            for index, result in self._finished():
                yield result
                self._begin(index, next_one())

    def _begin(self, index: int, configuration: Configuration | None) -> None:
        if configuration is None:
            self._processes[index].running = None
            return
        self._processes[index].begin(configuration)

    def _finished(self) -> list[tuple[int, dict[str, Any]]]:
        """Wait until something happens; what is finished, by process."""
        busy = {i: p for i, p in enumerate(self._processes) if p.running is not None}
        until = min(process.deadline for process in busy.values())
        pipes = [process.pipe for process in busy.values()]
        readable, _, _ = select.select(pipes, [], [], max(0.0, until - monotonic()))
        finished = []
        for index, process in busy.items():
            configuration = process.running
            result: dict[str, Any] | None = None
            if process.pipe in readable:
                result = self._heard(index, process)
            elif monotonic() >= process.deadline:
                result = process.interrupted("timeout", f"over {process.order.timeout_s} s")
                self._restart(index)
            if result is not None:
                finished.append((index, {"configuration": configuration, **result}))
        return finished

    def _heard(self, index: int, process: _Process) -> dict[str, Any] | None:
        """What a readable process has to say about its configuration: a result, or nothing yet."""
        messages = process.messages()
        if messages is None:
            result = process.interrupted("runtime_error", process.last_words()[-500:])
            broken = True
        else:
            found = [message for message in messages if message["kind"] == "result"]
            if not found:
                return None
            (result,) = found
            broken = result.pop("broken")
            del result["kind"]
        self._crashes = self._crashes + 1 if broken else 0
        if self._crashes >= _MAX_CRASHES_IN_A_ROW:
            raise RecordingError(
                f"a kernel must run for some configurations, but the last {self._crashes} "
                f"crashed: {result['message']}"
            )
        if broken:
            self._restart(index)
        return result

    def _restart(self, index: int) -> None:
        self._processes[index].stop()
        self._processes[index] = process = _Process(self._orders[index])
        self._described(process)

    def _described(self, process: _Process) -> Mapping[str, Any]:
        """Wait for a process's first message.

        Raises:
            RecordingError: it ended, or said that it cannot measure.
        """
        while monotonic() < process.deadline:
            readable, _, _ = select.select(
                [process.pipe], [], [], max(0.0, process.deadline - monotonic())
            )
            if not readable:
                break
            messages = process.messages()
            if messages is None:
                raise RecordingError(f"measuring must start, but ended: {process.last_words()}")
            for message in messages:
                if message["kind"] == "error":
                    raise RecordingError(message["message"])
                if message["kind"] == "space":
                    return message
        raise RecordingError(
            f"measuring must start within {_START_S:.0f} s, but did not: make the script's "
            f"reference faster"
        )
