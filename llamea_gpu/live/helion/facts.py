"""What Helion's own objects tell of a live kernel, for searchers that know more than values.

What it does: describes source, arguments and GPU of a bound kernel, says why a configuration
failed, and runs Helion's own searches by name.

What it does not do: measure, or decide anything.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from llamea_gpu.contract import Configuration, DeviceFacts, KernelFacts, Optimizer
from llamea_gpu.frameworks.helion.kernel_script import notes_on
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.live.helion.runtime import HelionEvaluate, HelionSearch
from llamea_gpu.searchers.helion.own import OwnSearch
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.spaces.recording import RecordingInfo

_OF_HELION = "llamea_gpu.searchers.helion.search:RecordedSearch"
_FAILURES = {
    "error": "does not compile or launch",
    "timeout": "takes too long to compile or run",
    "accuracy_error": "computes wrong results",
    "filtered": "is refused by the kernel's filter",
    "peer_compilation_fail": "does not compile on another device",
}
_MOST_SHOWN = 8


class ExplainingEvaluate(HelionEvaluate):
    """An evaluate that says why a configuration failed; ``on_batch`` is told after each batch."""

    def __init__(
        self,
        search: HelionSearch,
        space: HelionSpace,
        on_batch: Callable[[HelionEvaluate], None] = lambda _: None,
    ) -> None:
        super().__init__(search, space)
        self._on_batch = on_batch

    def measure(self, fresh: Sequence[Configuration]) -> None:
        """See `HelionEvaluate.measure`."""
        try:
            super().measure(fresh)
        finally:
            self._on_batch(self)

    def failure(self, config: Configuration) -> str | None:
        """What Helion says of a configuration that did not work."""
        known = self.space.canonical(config)
        status = None if known is None else self.statuses.get(known)
        return None if status is None else _FAILURES.get(status, f"failed ({status})")


class HelionFramework:
    """Helion, for `llamea_gpu.live.searcher`."""

    def facts(self, evaluate: HelionEvaluate, space: HelionSpace) -> KernelFacts:
        """Source, arguments and GPU of the bound kernel."""
        return KernelFacts(
            info=kernel_info(evaluate.search),
            default=untuned(evaluate.search, space),
            device=_device_facts(evaluate.search.kernel.env.device),
            notes=notes_on(space.names),
        )

    def own_search(
        self, searcher: LibrarySearcher, evaluate: HelionEvaluate, space: HelionSpace
    ) -> Optimizer | None:
        """One of Helion's searches on the kernel's own configuration spec."""
        if searcher.factory != _OF_HELION:
            return None
        search = evaluate.search
        return OwnSearch(searcher.settings, search.kernel, search.args, space)


def kernel_info(search: HelionSearch) -> RecordingInfo:
    """Source, arguments and GPU of the kernel that ``search`` tunes."""
    bound = search.kernel
    return RecordingInfo(
        name=str(bound.kernel.name),
        kernel=str(bound.kernel.name),
        device=_device_name(bound.env.device),
        framework=f"helion {importlib.metadata.version('helion')}",
        kernel_source=_source(bound.kernel.fn),
        arguments=_arguments(bound.kernel.fn, search.args),
    )


def untuned(search: HelionSearch, space: HelionSpace) -> Configuration | None:
    """What the kernel runs with untuned: a search's own default may be another one."""
    return space.place(search.kernel.config_spec.default_config()) or space.default


def _device_name(device: Any) -> str:
    if device.type != "cuda":
        return str(device)
    return str(torch.cuda.get_device_properties(device).name)


def _device_facts(device: Any) -> DeviceFacts | None:
    """What the driver says of an NVIDIA GPU: a slice of one says what the slice has."""
    if device.type != "cuda" or torch.version.hip:
        return None
    properties: Any = torch.cuda.get_device_properties(device)  # has more than its annotations
    try:
        return DeviceFacts(
            title=properties.name,
            compute_units=properties.multi_processor_count,
            unit_name="SM",
            warp_size=properties.warp_size,
            shared_kib_per_unit=properties.shared_memory_per_multiprocessor // 1024,
            shared_kib_per_block=properties.shared_memory_per_block_optin // 1024,
            registers_per_unit=properties.regs_per_multiprocessor,
            l2_mib=properties.L2_cache_size / 2**20,
            bandwidth_gb_s=None,
            peak_tflops={},
        )
    except AttributeError:  # a torch that tells less
        return None


def _source(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # written in an interpreter
        return ""


def _arguments(function: Any, values: Any) -> tuple[Mapping[str, object], ...]:
    names = list(inspect.signature(function).parameters)
    return tuple(
        {"name": names[i] if i < len(names) else "", **_described(value)}
        for i, value in enumerate(values)
    )


def _described(value: Any) -> Mapping[str, object]:
    if hasattr(value, "shape") and hasattr(value, "stride"):
        return {
            "shape": [int(n) for n in value.shape],
            "dtype": str(value.dtype),
            "strides": [int(n) for n in value.stride()],
        }
    if isinstance(value, list | tuple):
        parts = [str(dict(_described(each))) for each in value[:_MOST_SHOWN]]
        return {"value": f"{type(value).__name__} of {len(value)}: {', '.join(parts)}"}
    plain = value is None or isinstance(value, int | float | str)
    return {"value": value if plain else type(value).__name__}
