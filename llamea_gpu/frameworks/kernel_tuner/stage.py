"""What a process does that measures: one script, one device, one configuration at a time.

Every configuration is measured by ``tune_kernel`` itself: the strategy that it is given serves the
tasks of the process's owner. It keeps no results and decides nothing. Several such processes share
a device: they compile side by side, and check and time one after another.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import IO, Any
from unittest import mock

import numpy as np

from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.engine.worker import WAITING, Channel, Result
from llamea_gpu.errors import LlameaGpuError, RecordingError
from llamea_gpu.frameworks.kernel_tuner.kernel_script import (
    KernelScript,
    load_kernel_script,
    plain,
)
from llamea_gpu.frameworks.kernel_tuner.transfers import quicken
from llamea_gpu.spaces.space import Value

# What takes long to import, and may be before a fork: the backends' libraries do not touch CUDA
# as they are imported (cuda-python 13.5, CuPy 14.2).
PRELOAD = (
    *("numpy", "kernel_tuner"),
    *("kernel_tuner.backends.nvcuda", "kernel_tuner.backends.cupy"),
)
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
_WARM_UP = "llamea_gpu_warm_up"
_MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class ScriptStage:
    """Measure configurations of a kernel script; a task is a sequence of value indices.

    It reports what the script and ``tune_kernel`` say of kernel, space and device.

    Attributes:
        script: the file; sizes: arguments of its function.
        lock: a file that all processes of one device share: whoever checks or times holds it.
        scratch: a folder of this process's own, emptied when it starts.
        device: its number; backend: instead of the script's ``lang``.
        iterations: timed runs of each configuration.
        listed: the valid configurations are listed and described first; False for a kernel that has
            too many of them.
    """

    script: Path
    lock: Path
    scratch: Path
    device: int = 0
    backend: str | None = None
    iterations: int = 7
    sizes: Mapping[str, Value] = field(default_factory=dict)
    listed: bool = True

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        script = load_kernel_script(self.script, self.sizes)
        arguments = {
            **script.arguments,
            "device": self.device,
            "iterations": self.iterations,
            "lang": self.backend or script.language,
            "quiet": True,
        }
        _empty(self.scratch)
        # Compilations are to be measured, not answered from a cache of an earlier run.
        os.environ["CUPY_CACHE_DIR"] = os.environ["TMPDIR"] = str(self.scratch)
        os.environ["CUDA_CACHE_DISABLE"] = "1"
        # Kernel Tuner writes sources of what failed, and compilers their output, where we are.
        os.chdir(self.scratch)
        with nullcontext() if self.listed else _unlisted(arguments):
            measure(channel, arguments, self.lock, script)


@contextmanager
def _unlisted(arguments: dict[str, Any]) -> Iterator[None]:
    """Have ``tune_kernel`` list no configurations: it asks for nothing but their number."""
    from kernel_tuner.searchspace import Searchspace

    options = {"searchspace_construction_options": {"defer_construction": True}}
    arguments["strategy_options"] = options
    with (
        mock.patch.object(Searchspace, "size", 1, create=True),
        mock.patch.object(Searchspace, "list", (), create=True),
    ):
        yield


def measure(
    channel: Channel,
    arguments: Mapping[str, Any],
    lock: Path,
    script: KernelScript | None = None,
) -> None:
    """Serve measurements of a kernel in this process.

    Args:
        channel: of this process. A task is a configuration: values in the order of ``tune_params``,
            or, of a ``script``, their indices.
        arguments: of ``tune_kernel``, but those that are the caller's.
        lock: held by whoever uses the device.
        script: whose kernel it is; it is described to the owner, with its space.

    Raises:
        RecordingError: the kernel or the backend cannot be used.
    """
    from kernel_tuner import core, tune_kernel

    # The sources of what fails would stay where we are.
    core.KernelInstance.prepare_temp_files_for_error_msg = _without_a_copy
    cupy: Any = import_module("kernel_tuner.backends.cupy")
    if cupy.cp is not None:
        cupy.get_runtime_info = partial(_gpus, cupy.cp.cuda.runtime, cupy.get_runtime_info)
    measuring = _Measuring(channel, lock, script)
    try:
        # Whatever the environment says: who shares devices out is the owner.
        tune_kernel(**{**arguments, "parallel": False}, strategy=measuring)
    except LlameaGpuError:
        raise
    except Exception as error:  # the script's, the backend's: the owner reports it
        raise RecordingError(f"{type(error).__name__}: {error}") from error


class Phases:
    """Says which phase a configuration has come to, and keeps how long each took.

    Compilations may go on side by side; what uses the device has it alone. Where the device is a
    GPU, a check does so from refreshing the outputs until the results have left: meanwhile the next
    process has its turn.
    """

    def __init__(self, announce: Callable[[str], None], lock: Path) -> None:
        self._announce = announce
        self._lock = lock
        self._held: IO[str] | None = None
        self._waited_s = 0.0
        self.seconds: dict[str, float] = {}
        self.current = ""

    def watch(self, device: Any) -> None:
        """Time the methods of a ``DeviceInterface``, which loses the time of what raises."""
        alone = {"check", "benchmark"}
        if "time" in device.dev.units:  # by events of a GPU: the host is free to copy and compare
            alone = {"benchmark"}
            quicken(device)
            device.dev.refresh_memory = self._acquiring(device.dev.refresh_memory)
            device.retrieve_results_to_host = self._releasing(device.retrieve_results_to_host)
        for phase, method in _PHASES:
            timed = self._timed(phase, getattr(device, method), alone=phase in alone)
            setattr(device, method, timed)

    def reset(self) -> None:
        """Begin with another configuration."""
        self.seconds, self.current = {}, ""

    def _timed(self, phase: str, call: Callable[..., Any], *, alone: bool) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if alone:
                self._acquire()
            self.current = phase
            self._announce(phase)
            self._waited_s, start = 0.0, perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[phase] = perf_counter() - start - self._waited_s
                self._release()

        return timed

    def _acquiring(self, refresh: Callable[..., Any]) -> Callable[..., Any]:
        def refreshed(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            self._acquire()
            self._announce(self.current)
            self._waited_s += perf_counter() - start
            return refresh(*args, **kwargs)

        return refreshed

    def _releasing(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        def fetched(*args: Any, **kwargs: Any) -> Any:
            results = fetch(*args, **kwargs)
            if all(result is None or isinstance(result, np.ndarray) for result in results):
                self._release()
            return results

        return fetched

    def _acquire(self) -> None:
        """Wait for the device, and have it alone."""
        self._announce(WAITING)
        self._held = self._lock.open("a")
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()  # which releases the lock, as dying does
            self._held = None


class _Measuring:
    """The strategy given to ``tune_kernel``: runs what the process's owner asks for."""

    def __init__(self, channel: Channel, lock: Path, script: KernelScript | None) -> None:
        self._channel = channel
        self._phases = Phases(channel.phase, lock)
        self._script = script
        self._warm = False

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[Any]:
        """Kernel Tuner's entry into a strategy. Returns when the owner is gone."""
        from kernel_tuner.util import TuningBudget

        self._phases.watch(runner.dev)
        tuning_options.budget = TuningBudget()  # that is the owner's business, and so is
        tuning_options.cache = None  # what is known already
        values = [tuple(v) for v in searchspace.params_values]

        def handle(task: Sequence[Any]) -> Result:
            configuration = tuple(task)
            if self._script is not None:
                configuration = tuple(vs[i] for vs, i in zip(values, task, strict=True))
            return self._measured(configuration, runner, tuning_options)

        facts: Mapping[str, Any] = {}
        if self._script is not None:
            facts = _description(self._script, searchspace, runner, tuning_options)
        self._channel.serve(facts, handle)
        return []

    def _measured(self, configuration: tuple[Any, ...], runner: Any, options: Any) -> Result:
        self._phases.reset()
        try:
            if not self._warm:
                self._warm_up(configuration, runner, options)
            (result,) = runner.run([configuration], options)
        except Exception as error:  # whatever the kernel does to any backend
            return self._failure(error)
        return report(result, self._phases.seconds)

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

    def _failure(self, error: Exception) -> Result:
        phase = self._phases.current
        incorrect = phase == "check" and "verification failed" in str(error)
        return {
            "status": "incorrect" if incorrect else _STATUS_OF_PHASE.get(phase, "runtime_error"),
            "seconds": self._phases.seconds,
            "message": str(error).replace(f", {_WARM_UP}=1", "").strip()[:_MOST_SHOWN],
            # After a fault inside a kernel the CUDA context answers every call with that fault.
            "broken": phase in ("check", "benchmark") and not incorrect,
        }


def report(result: Mapping[str, Any], seconds: Mapping[str, float]) -> Result:
    """A result of Kernel Tuner in our words, and, where it works, as it is: ``result``.

    Its times are in ms, and those to check and to benchmark include waiting for the device, which
    ``seconds`` by phase do not.
    """
    error_name = str(result.get("__error__", ""))
    seconds = {**seconds, "compile": result["compile_time"] / 1e3}
    if error_name:
        status = _STATUS_OF_WORD.get(error_name, "error")
        return {"status": status, "seconds": seconds, "message": error_name}
    time_ms = float(result["time"])
    if not 0 < time_ms < np.inf:
        message = f"the time must be > 0 ms, but is {time_ms}"
        return {"status": "error", "seconds": seconds, "message": message}
    times = np.array(result.get("times", ()), dtype=float)
    return {
        "status": "ok",
        "time_ms": time_ms,
        "seconds": seconds,
        "spread": float(times.std() / times.mean()) if len(times) > 1 else None,
        "result": dict(result),
    }


def measurement(outcome: Outcome) -> dict[str, Any]:
    """An outcome as a journal keeps it; None for what is not there.

    Where the process could not report, the seconds are those of the phases that it had come to.
    """
    details = outcome.details
    seconds = details.get("seconds", outcome.phase_s)
    return {
        "status": outcome.status,
        "time_ms": details.get("time_ms"),
        "compile_s": seconds.get("compile", 0.0),
        "benchmark_s": seconds.get("check", 0.0) + seconds.get("benchmark", 0.0),
        "spread": details.get("spread"),
        "message": details.get("message", ""),
    }


def _description(
    script: KernelScript, searchspace: Any, runner: Any, options: Any
) -> dict[str, Any]:
    lists, default = searchspace.params_values, script.default_configuration
    # By type and value, because Kernel Tuner lets one parameter hold both 1 and True.
    index = [{(type(v), v): i for i, v in enumerate(values)} for values in lists]
    return {
        "names": list(searchspace.param_names),
        "values": [[plain(v) for v in values] for values in lists],
        "configurations": [
            [places[type(v), v] for places, v in zip(index, configuration, strict=True)]
            for configuration in searchspace.list
        ],
        "max_threads": int(searchspace.max_threads),
        "environment": {key: str(value) for key, value in runner.get_environment(options).items()},
        "device": str(runner.dev.name) or platform.machine(),
        "language": str(runner.kernel_source.lang),
        "kernel": str(script.arguments["kernel_name"]),
        "kernel_source": script.kernel_text(),
        "arguments": [dict(facts) for facts in script.argument_facts()],
        "constraints": list(script.constraints()),
        "problem_size": script.problem_size(),
        "verified": script.verified,
        "compiler_options": str(script.arguments.get("compiler_options") or ""),
        "launch": script.launch(),
        "name": script.name,
        "default_configuration": default and {n: plain(v) for n, v in default.items()},
        "note": script.note,
    }


def _without_a_copy(instance: Any) -> list[str]:
    instance.delete_temp_files()
    return []


def _gpus(runtime: Any, everything: Callable[[], Any]) -> str:
    """What Kernel Tuner reads of CuPy's description of itself, names and buses of the GPUs.

    ``everything`` starts all of CUDA's libraries, on all GPUs, in order to name their versions.
    """
    try:
        text = ""
        for i in range(runtime.getDeviceCount()):
            text += f"Device {i} Name: {runtime.getDeviceProperties(i)['name'].decode()}\n"
            text += f"Device {i} PCI Bus ID: {runtime.deviceGetPCIBusId(i)}\n"
    except Exception:  # another version's
        return str(everything())
    return text


def _empty(folder: Path) -> None:
    """With what a predecessor that was killed has left behind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
