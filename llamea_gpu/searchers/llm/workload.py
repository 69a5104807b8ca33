"""What a proposer tells of a kernel, from what a recording or a live framework says of it.

A recording's reference times and whatever else was measured are never part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llamea_gpu.contract import DeviceFacts
from llamea_gpu.prompting.proposer import Argument, Workload
from llamea_gpu.searchers.llm.devices import find_device
from llamea_gpu.searchers.llm.roofline import roofline
from llamea_gpu.spaces.recording import RecordingInfo

# What provenance may say that describes the task and not its result.
_TASK_FACTS = ("problem_size",)
_MAX_DIMENSIONS = 16


def workload_of(
    info: RecordingInfo | None,
    parallel: int,
    *,
    device: DeviceFacts | None = None,
    notes: tuple[str, ...] = (),
) -> Workload:
    """The workload that ``info`` describes; None stands for a space nobody described.

    ``device`` is what the GPU says of itself, where no vendor's figures are known; ``notes`` are
    further facts.
    """
    if info is None:
        return Workload(
            kernel="a kernel", framework="its framework", device="a GPU", parallel=parallel
        )
    arguments = tuple(argument_of(argument) for argument in info.arguments)
    facts = find_device(info.device) or device
    return Workload(
        kernel=info.kernel,
        framework="its framework" if info.framework == "unknown" else info.framework,
        device=info.device,
        source=info.kernel_source,
        arguments=arguments,
        facts=facts,
        roofline=roofline(info.kernel, info.kernel_source, arguments, facts),
        notes=(
            *(
                f"{name.replace('_', ' ')}: {info.provenance[name]}"
                for name in _TASK_FACTS
                if name in info.provenance
            ),
            *notes,
        ),
        parallel=parallel,
    )


def argument_of(described: Mapping[str, Any]) -> Argument:
    """An argument from a mapping with any of name, shape, dtype, strides and value."""
    shape = _dimensions(described.get("shape"))
    return Argument(
        name=str(described.get("name", "")),
        shape=shape,
        dtype=str(described.get("dtype", "")),
        strides=_dimensions(described.get("strides", described.get("stride"))),
        value="" if shape is not None else str(described.get("value", dict(described))),
    )


def _dimensions(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple) or len(value) > _MAX_DIMENSIONS:
        return None
    if not all(type(each) is int and 0 <= each < 1 << 40 for each in value):
        return None
    return tuple(value) if math.prod(value) < 1 << 60 else None
