"""Quicker copies between host and GPU for Kernel Tuner's CuPy backend, with the same contents.

Before each check of a result Kernel Tuner copies the outputs' first contents from the host to the
GPU again, and afterwards what the kernel wrote to newly allocated memory of the host. A process
that measures does nothing else with the GPU meanwhile, and all others wait for it. Here the first
contents stay on the GPU, once in each process, and results go to page-locked memory that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

_BACKEND = "CupyFunctions"


def quicken(device: Any) -> None:
    """Have a ``DeviceInterface`` copy in this way, if its backend is CuPy."""
    if type(device.dev).__name__ == _BACKEND:
        cupy, cupyx = import_module("cupy"), import_module("cupyx")
        use(device, Transfers(cupy.ndarray, cupyx.empty_like_pinned))


def use(device: Any, transfers: Transfers) -> None:
    """Put the two copies in the place of a ``DeviceInterface``'s own."""
    backend = device.dev
    backend.refresh_memory = transfers.refreshing(backend.refresh_memory)
    device.retrieve_results_to_host = transfers.retrieving(device.retrieve_results_to_host)


class Transfers:
    """Copies of NumPy arrays by their GPU arrays; whatever else is left to Kernel Tuner.

    Args:
        gpu_array: the type of arrays on the GPU; they have ``copy()``, ``get(out=)`` and can be
            assigned to by ``[...]``.
        page_locked: an uninitialised array of the host like the one given.
    """

    def __init__(self, gpu_array: Any, page_locked: Callable[[Any], Any]) -> None:
        self._gpu_array, self._page_locked = gpu_array, page_locked
        # By the id of the host's array, which is kept so that no other can have it.
        self._first: dict[int, tuple[Any, Any]] = {}
        self._results: dict[int, tuple[Any, Any]] = {}

    def refreshing(self, original: Callable[..., None]) -> Callable[..., None]:
        """In place of a backend's ``refresh_memory``."""

        def refresh(gpu_memory: Sequence[Any], arguments: Sequence[Any], should_sync: Any) -> None:
            left = list(should_sync)
            for i, (gpu_argument, argument) in enumerate(zip(gpu_memory, arguments, strict=False)):
                if (
                    left[i]
                    and self._is_plain(gpu_argument, argument)
                    and id(argument) in self._first
                ):
                    gpu_argument[...] = self._first[id(argument)][1]
                    left[i] = False
            original(gpu_memory, arguments, left)
            for i, (gpu_argument, argument) in enumerate(zip(gpu_memory, arguments, strict=False)):
                if left[i] and self._is_plain(gpu_argument, argument):
                    self._first[id(argument)] = argument, gpu_argument.copy()

        return refresh

    def retrieving(self, original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """In place of ``retrieve_results_to_host``; a result is good until the next check."""

        def retrieve(
            arguments: Sequence[Any], should_sync: Any, gpu_memory: Sequence[Any], answer: Any
        ) -> list[Any]:
            left = list(should_sync)
            retrieved: dict[int, Any] = {}
            for i, argument in enumerate(arguments):
                if left[i] and self._is_plain(gpu_memory[i], argument):
                    if id(argument) not in self._results:
                        self._results[id(argument)] = argument, self._page_locked(argument)
                    retrieved[i] = self._results[id(argument)][1]
                    gpu_memory[i].get(out=retrieved[i])
                    left[i] = False
            results = original(arguments, left, gpu_memory, answer)
            return [retrieved.get(i, result) for i, result in enumerate(results)]

        return retrieve

    def _is_plain(self, gpu: Any, host: Any) -> bool:
        return (
            isinstance(host, np.ndarray)
            and isinstance(gpu, self._gpu_array)
            and host.flags.c_contiguous
            and (gpu.shape, gpu.dtype) == (host.shape, host.dtype)
        )
