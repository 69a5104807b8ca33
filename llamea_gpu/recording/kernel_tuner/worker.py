"""The process that measures: one script, one device, one configuration at a time.

    python -m llamea_gpu.recording.kernel_tuner.worker

reads JSON lines and writes JSON lines. The first line read is a :class:`Order`; what it writes
back first describes the space and the machine; then each line read is the values of one
configuration, and each is answered by lines that name the phase it has come to and one with the
result. A kernel that crashes the process or its CUDA context costs this process only.

Every configuration is measured by ``tune_kernel`` itself: the strategy that it is given asks the
parent process what to run next. It keeps no results and decides nothing.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import numpy as np

from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.frameworks.kernel_tuner.kernel_script import KernelScript, load_kernel_script
from llamea_gpu.spaces.space import Value

# What Kernel Tuner does to a configuration: our phase, the method of its DeviceInterface.
_PHASES = (
    ("compile", "compile_kernel"),
    ("check", "check_kernel_output"),
    ("benchmark", "benchmark"),
)
_STATUS_OF_PHASE = {"compile": "compile_error", "check": "runtime_error"}
_STATUS_OF_WORD = {
    "InvalidConfig": "invalid",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "runtime_error",
}
WAITING = "wait"  # for the device: no phase of the configuration
_WARM_UP = "llamea_gpu_warm_up"
_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure and where: the first line a worker reads.

    ``lock`` is a file that all processes of one device share: whoever checks or times holds it.
    """

    script: str
    lock: str
    device: int = 0
    backend: str | None = None
    iterations: int = 7
    timeout_s: float = 60.0
    sizes: Mapping[str, Value] = field(default_factory=dict)

    def tune_kernel_arguments(self, script: KernelScript) -> dict[str, Any]:
        """Keyword arguments of ``tune_kernel``, without a strategy."""
        return {
            **script.arguments,
            "device": self.device,
            "iterations": self.iterations,
            "lang": self.backend or script.language,
            "parallel": False,  # whatever the environment says: devices are shared out by the pool
            "quiet": True,
        }


class Phases:
    """Says which phase a configuration has come to, and keeps how long each took.

    Compilations may go on side by side; what uses the device has it alone.
    """

    def __init__(self, announce: Callable[[Mapping[str, Any]], None], order: Order) -> None:
        self._announce = announce
        self._lock = Path(order.lock)
        self._alarm_s = math.ceil(order.timeout_s) + _GRACE_S
        self.seconds: dict[str, float] = {}
        self.current = ""

    def watch(self, device: Any) -> None:
        """Time the methods of a ``DeviceInterface``, which loses the time of what raises."""
        for phase, method in _PHASES:
            setattr(device, method, self._timed(phase, getattr(device, method)))

    def reset(self) -> None:
        """Begin with another configuration."""
        self.seconds, self.current = {}, ""

    def _timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with nullcontext() if phase == "compile" else self._device_alone():
                self.current = phase
                self._announce({"kind": "phase", "phase": phase})
                signal.alarm(self._alarm_s)  # the parent stops what hangs, unless it is gone
                start = perf_counter()
                try:
                    return call(*args, **kwargs)
                finally:
                    self.seconds[phase] = perf_counter() - start
                    signal.alarm(0)

        return timed

    @contextmanager
    def _device_alone(self) -> Iterator[None]:
        self._announce({"kind": "phase", "phase": WAITING})
        with self._lock.open("a") as file:  # closing it releases the lock, as dying does
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _Measuring:
    """The strategy given to ``tune_kernel``: runs what the parent process asks for."""

    def __init__(self, script: KernelScript, order: Order, lines: TextIO, answers: TextIO) -> None:
        self._script = script
        self._lines = lines
        self._answers = answers
        self._phases = Phases(self._send, order)
        self._warm = False

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[Any]:
        """Kernel Tuner's entry into a strategy. Returns when the parent asks for nothing more."""
        self._phases.watch(runner.dev)
        self._send(self._description(searchspace, runner, tuning_options))
        values = [tuple(v) for v in searchspace.params_values]
        for line in self._lines:
            indices = json.loads(line)
            configuration = tuple(vs[i] for vs, i in zip(values, indices, strict=True))
            result = self._measured(configuration, runner, tuning_options)
            self._send({"kind": "result", **result})
            if result["broken"]:
                break
        return []

    def _measured(
        self, configuration: tuple[Any, ...], runner: Any, options: Any
    ) -> dict[str, Any]:
        self._phases.reset()
        try:
            if not self._warm:
                self._warm_up(configuration, runner, options)
            (result,) = runner.run([configuration], options)
        except Exception as error:  # whatever the kernel does to any backend
            return self._failure(error)
        return outcome(result, self._phases.seconds)

    def _warm_up(self, configuration: tuple[Any, ...], runner: Any, options: Any) -> None:
        """Run once unmeasured, as source of its own: a cached compilation would measure nothing."""
        parameters = dict(zip(options.tune_params, configuration, strict=True))
        runner.dev.compile_and_benchmark(
            runner.kernel_source,
            runner.gpu_args,
            {**parameters, _WARM_UP: 1},
            runner.kernel_options,
            options,
        )
        runner.warmed_up = self._warm = True
        self._phases.reset()

    def _failure(self, error: Exception) -> dict[str, Any]:
        phase, seconds = self._phases.current, self._phases.seconds
        incorrect = phase == "check" and "verification failed" in str(error)
        return {
            "status": "incorrect" if incorrect else _STATUS_OF_PHASE.get(phase, "runtime_error"),
            "time_ms": None,
            "compile_s": seconds.get("compile", 0.0),
            "benchmark_s": seconds.get("check", 0.0) + seconds.get("benchmark", 0.0),
            "spread": None,
            "message": str(error).strip()[:500],
            # After a fault inside a kernel the CUDA context answers every call with that fault.
            "broken": phase in ("check", "benchmark") and not incorrect,
        }

    def _description(self, searchspace: Any, runner: Any, options: Any) -> dict[str, Any]:
        values = [[_python(v) for v in vs] for vs in searchspace.params_values]
        index = [{v: i for i, v in enumerate(vs)} for vs in values]
        return {
            "kind": "space",
            "names": list(searchspace.param_names),
            "values": values,
            "configurations": [
                [index[j][value] for j, value in enumerate(configuration)]
                for configuration in searchspace.list
            ],
            "environment": {
                key: str(value) for key, value in runner.get_environment(options).items()
            },
            "device": str(runner.dev.name) or platform.machine(),
            "language": str(runner.kernel_source.lang),
            "kernel": str(self._script.arguments["kernel_name"]),
            "kernel_source": self._script.kernel_text(),
            "arguments": [dict(facts) for facts in self._script.argument_facts()],
            "constraints": list(self._script.constraints()),
            "problem_size": self._script.problem_size(),
            "verified": self._script.verified,
            "compiler_options": str(self._script.arguments.get("compiler_options") or ""),
            "launch": self._script.launch(),
            "name": self._script.name,
            "default_configuration": _python_values(self._script.default_configuration),
            "note": self._script.note,
        }

    def _send(self, message: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def outcome(result: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, Any]:
    """A result of Kernel Tuner in our words.

    Its times are in ms, and those to check and to benchmark include waiting for the device, which
    ``seconds`` by phase do not.
    """
    word = str(result.get("__error__", ""))
    status = _STATUS_OF_WORD.get(word, "error") if word else "ok"
    time_ms = float(result["time"]) if status == "ok" else None
    message = word
    if time_ms is not None and not 0 < time_ms < np.inf:
        status, time_ms, message = "error", None, f"the time must be > 0 ms, but is {time_ms}"
    times = np.array(result.get("times", ()), dtype=float)
    spread = float(times.std() / times.mean()) if time_ms is not None and len(times) > 1 else None
    return {
        "status": status,
        "time_ms": time_ms,
        "compile_s": result["compile_time"] / 1e3,
        "benchmark_s": seconds.get("check", 0.0) + seconds.get("benchmark", 0.0),
        "spread": spread,
        "message": message,
        "broken": False,
    }


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _python_values(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else {name: _python(value) for name, value in values.items()}


@contextmanager
def _protocol() -> Iterator[TextIO]:
    """Standard output for our lines alone: what libraries print there goes to standard error."""
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "w", encoding="utf-8") as answers:
        yield answers


def _run(order: Order, answers: TextIO) -> None:
    from kernel_tuner import tune_kernel

    script = load_kernel_script(Path(order.script), order.sizes)
    # Kernel Tuner writes sources of what failed, and compilers their output, where we are.
    with tempfile.TemporaryDirectory(prefix="llamea-gpu-record-") as scratch:
        # Compilations are to be measured, not answered from a cache of an earlier run.
        os.environ["CUPY_CACHE_DIR"] = scratch
        os.environ["CUDA_CACHE_DISABLE"] = "1"
        os.chdir(scratch)
        measuring = _Measuring(script, order, sys.stdin, answers)
        try:
            tune_kernel(**order.tune_kernel_arguments(script), strategy=measuring)
        finally:
            os.chdir("/")


def main() -> None:
    """Serve one parent process until it closes the pipe."""
    with _protocol() as answers:
        try:
            _run(Order(**json.loads(sys.stdin.readline())), answers)
        except BrokenPipeError:
            os._exit(1)  # the parent is gone: nobody to tell
        except Exception as error:  # the script's, the backend's: the parent reports it
            message = str(error) if isinstance(error, LlameaGpuError) else repr(error)
            answers.write(json.dumps({"kind": "error", "message": message}) + "\n")
            raise


def order_line(order: Order) -> str:
    """The first line that a worker reads."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    main()
