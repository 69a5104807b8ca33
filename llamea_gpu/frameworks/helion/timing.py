"""Checks and times generated code on the GPU of this process.

A result is right when it agrees with the expected one, element by element. Triton's protocol times:
medians of single launches between events, with the level-2 cache overwritten before each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from llamea_gpu.engine.side_by_side import side_by_side
from llamea_gpu.engine.worker import Result
from llamea_gpu.frameworks.helion.compiling import (
    ConfigurationRefusedError,
    compile_file,
    generated_module,
)

# Of the difference to what is expected, relative to the element plus the root mean square of all.
TOLERANCE = {"float32": 1e-2, "float16": 1e-2, "bfloat16": 2e-2}
_DEFAULT_TOLERANCE = 2e-2
POISON = 3.0e4  # finite in every floating-point type from float16 up
_BUDGET_MS = 20.0
_FEWEST, _MOST = 5, 300
_ESTIMATES = 3
_CYCLES_PER_MS = 1.9e6  # of a GPU, more or less
_SETTLING = 0.2  # of a window: what ran before still shows
_MOST_IN_A_WINDOW = 20_000
_LAUNCH_BOUND = 0.8  # of a launch's time: where the processor takes so much, it may be the slower
_LONGEST_HEAD_START_MS = 50.0

Check = Callable[[Any, Sequence[Any]], str]


class Bench:
    """A kernel's arguments, what is right, and the clock.

    Args:
        name: of the function that generated code defines.
        arguments: makes the arguments of one configuration: the same ones, or copies where the
            kernel changes them.
        expected: the right result's tensors.
        check: takes a result and the arguments after the call; says what is wrong, or nothing.
    """

    def __init__(
        self,
        name: str,
        arguments: Callable[[], Sequence[Any]],
        expected: Sequence[Any],
        check: Check,
    ) -> None:
        self._name, self._arguments = name, arguments
        self._expected, self._check = expected, check

    def timed(self, compiled: Mapping[str, Any]) -> Result:
        """Check and time one compiled configuration: ``path``, and ``give_up_ms`` if it is there.

        A time of what was given up is that of one launch (``launches``).
        """
        start = perf_counter()
        try:
            measurement = self._checked_and_timed(
                Path(compiled["path"]), compiled.get("give_up_ms", math.inf)
            )
        except Exception as error:  # whatever a launch raises; what CUDA is left in shows below
            message = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            measurement = {"status": "runtime_error", "message": message, "broken": is_broken()}
        return {**measurement, "benchmark_s": perf_counter() - start}

    def load(self, path: Path) -> None:
        """Do all that a first launch does before it launches."""
        with suppress(ConfigurationRefusedError):
            compile_file(path, self._name, self._arguments())

    def compared(self, task: Mapping[str, Any]) -> Result:
        """Time compiled configurations again, side by side in long windows.

        ``task`` has their ``paths``, the ``seconds`` to take, and ``status`` is always ok but where
        loading them fails. ``standings`` are those of
        :class:`llamea_gpu.engine.side_by_side.Standing`, as lists.
        """
        try:
            with ExitStack() as stack:
                calls = [self._loaded(stack, Path(path)) for path in task["paths"]]
                for call in calls:  # what the first call sets up is not timed
                    call()
                comparison = side_by_side(
                    lambda i, seconds: time_window(calls[i], seconds), len(calls), task["seconds"]
                )
        except Exception as error:  # as in `timed`
            message = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            return {"status": "runtime_error", "message": message, "broken": is_broken()}
        standings = [[s.time_ms, s.low_ms, s.high_ms, s.windows] for s in comparison]
        return {"status": "ok", "standings": standings}

    def _loaded(self, stack: ExitStack, path: Path) -> Callable[[], object]:
        arguments = self._arguments()
        function = getattr(stack.enter_context(generated_module(path)), self._name)
        return lambda: function(*arguments)

    def _checked_and_timed(self, path: Path, give_up_ms: float) -> dict[str, Any]:
        import torch

        arguments = self._arguments()
        with generated_module(path) as module:
            function = getattr(module, self._name)
            # What the allocator hands out next held the right result a moment ago.
            poison = [torch.full_like(t, poison_value(t.dtype)) for t in self._expected]
            del poison
            start = perf_counter()
            output = function(*arguments)
            torch.cuda.synchronize()
            first_s = perf_counter() - start
            wrong = self._check(output, arguments)
            if wrong:
                return {"status": "incorrect", "message": wrong}
            del output
            times = time_call(lambda: function(*arguments), give_up_ms=give_up_ms)
            return {"status": "ok", "first_s": first_s, **times}


def time_call(
    call: Callable[[], object], head_start_ms: float = 0.0, give_up_ms: float = math.inf
) -> dict[str, float]:
    """Median and quartiles of a call's time on the GPU, by Triton's protocol.

    Args:
        call: launches the kernel.
        head_start_ms: time, at least, for which the GPU is kept busy first, while the launches
            queue up. It is as long as they take where launching seems to be what is timed: on a
            busy processor a kernel of .03 ms, or one of .2 ms whose tensor descriptors are made on
            the host, is otherwise over before the next can be launched.
        give_up_ms: when the first launch takes longer than this, it is the only one.

    Returns:
        ``time_ms`` (median), ``low_ms`` and ``high_ms`` (quartiles), ``launches``.
    """
    import torch
    import triton

    driver = triton.runtime.driver.active
    cache = driver.get_empty_cache_for_benchmark()

    def once(start: Any, end: Any) -> None:
        driver.clear_cache(cache)
        start.record()
        call()
        end.record()

    call()  # what the first call sets up is not timed
    begin, finish = _events()
    torch.cuda.synchronize()
    if give_up_ms < math.inf:
        once(begin, finish)
        torch.cuda.synchronize()
        if (only_ms := begin.elapsed_time(finish)) > give_up_ms:
            return {"time_ms": only_ms, "low_ms": only_ms, "high_ms": only_ms, "launches": 1}
    begin.record()
    launching = perf_counter()
    for _ in range(_ESTIMATES):
        driver.clear_cache(cache)
        call()
    launch_ms = 1e3 * (perf_counter() - launching) / _ESTIMATES
    finish.record()
    torch.cuda.synchronize()
    estimate_ms = begin.elapsed_time(finish) / _ESTIMATES
    count = max(_FEWEST, min(_MOST, round(_BUDGET_MS / max(estimate_ms, 1e-3))))
    if launch_ms > _LAUNCH_BOUND * estimate_ms:
        head_start_ms = max(head_start_ms, min(count * launch_ms, _LONGEST_HEAD_START_MS))
    events = [_events() for _ in range(count)]
    if head_start_ms:
        spin: Any = torch.cuda._sleep
        spin(round(head_start_ms * _CYCLES_PER_MS))
    for start, end in events:
        once(start, end)
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in events)
    return {
        "time_ms": times[count // 2],
        "low_ms": times[count // 4],
        "high_ms": times[(3 * count) // 4],
        "launches": count,
    }


def time_window(call: Callable[[], object], seconds: float) -> float:
    """Median milliseconds of a call in a window of about so many seconds of the GPU's time.

    The protocol is that of :func:`time_call`. The first fifth of the launches is not counted.
    """
    import torch
    import triton

    driver = triton.runtime.driver.active
    cache = driver.get_empty_cache_for_benchmark()

    def launched(count: int) -> list[float]:
        events = [_events() for _ in range(count)]
        for start, end in events:
            driver.clear_cache(cache)
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    begin = perf_counter()
    launched(_ESTIMATES)
    each_s = (perf_counter() - begin) / _ESTIMATES
    count = max(_FEWEST, min(_MOST_IN_A_WINDOW, round(seconds / max(each_s, 1e-6))))
    return statistics.median(launched(count)[int(_SETTLING * count) :])


def _events() -> tuple[Any, Any]:
    import torch

    event: Any = torch.cuda.Event  # not annotated
    return event(enable_timing=True), event(enable_timing=True)


def tensors(value: object) -> list[Any]:
    """The tensors of a result or of arguments, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def bits(tensor: Any) -> Any:
    """The same memory as integers: NaN equals itself, and every type can be compared."""
    import torch

    tensor = _real(tensor)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def _real(tensor: Any) -> Any:
    """A tensor of complex numbers as one of real ones, with one more dimension."""
    import torch

    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def poison_value(dtype: Any) -> float:
    """A value of this type that no result should have."""
    import torch

    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return POISON
    return int(torch.iinfo(dtype).max)


def difference(actual: list[Any], expected: list[Any]) -> str:
    """Where a result is wrong; empty when it is right."""
    if [(t.shape, t.dtype) for t in actual] != [(t.shape, t.dtype) for t in expected]:
        return "the result has other shapes or types than the default configuration's"
    for tensor, expected_tensor in zip(map(_real, actual), map(_real, expected), strict=True):
        wide = expected_tensor.float()
        tolerance = TOLERANCE.get(
            str(expected_tensor.dtype).removeprefix("torch."), _DEFAULT_TOLERANCE
        )
        if not expected_tensor.dtype.is_floating_point:
            tolerance = 0.0  # an index is right or wrong
        scale = wide.square().mean().sqrt().clamp(min=1e-30)
        excess = (tensor.float() - wide).abs() / (wide.abs() + scale)
        worst = float(excess.max()) if excess.numel() else 0.0
        if not worst <= tolerance:  # NaN is wrong, too
            return f"an element differs by {worst:.3g}, more than {tolerance} of its scale"
    return ""


def relative_error(actual: list[Any], reference: list[Any]) -> float:
    """The largest relative error of a result's tensors; inf when they cannot be compared."""
    if [t.shape for t in actual] != [t.shape for t in reference] or not actual:
        return float("inf")
    return max(
        float((a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-30))
        for a, b in zip(map(_real, actual), map(_real, reference), strict=True)
    )


def is_broken() -> bool:
    """Whether CUDA is of no more use in this process (after an illegal memory access)."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:  # the sticky error
        return True
    return False
