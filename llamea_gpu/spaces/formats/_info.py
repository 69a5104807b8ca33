"""RecordingInfo to JSON and back, for the formats that can carry it whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamea_gpu.spaces.formats._base import Fields, as_number, format_errors
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import RecordingInfo
from llamea_gpu.spaces.space import Value


def info_from_json(fields: Fields, name: str | None) -> RecordingInfo:
    """Check every type; ``name`` overrides the one stored.

    Raises:
        SpaceFormatError: an entry is missing or of another type.
    """
    arguments = fields.sequence("arguments")
    if not all(isinstance(argument, dict) for argument in arguments):
        raise fields.error("'arguments' must be an array of objects")
    workers = fields.get("parallel_workers")
    if not isinstance(workers, int) or isinstance(workers, bool):
        raise fields.error(f"'parallel_workers' must be a whole number, but is {quoted(workers)}")
    if not isinstance(fields.get("exhaustive"), bool):
        raise fields.error("'exhaustive' must be true or false")
    with format_errors(fields.path, fields.position):
        return RecordingInfo(
            name=name or fields.text("name"),
            kernel=fields.text("kernel"),
            device=fields.text("device"),
            framework=fields.text("framework"),
            kernel_source=fields.text("kernel_source"),
            arguments=tuple(arguments),
            default_configuration=_default_configuration(fields),
            references_ms=_numbers(fields, "references_ms"),
            parallel_workers=workers,
            provenance=_texts(fields, "provenance"),
            exhaustive=fields.get("exhaustive"),
        )


def parameters_to_json(names: tuple[str, ...], values: tuple[tuple[Value, ...], ...]) -> list[Any]:
    """Names and values in order, as an array of objects."""
    return [{"name": n, "values": list(v)} for n, v in zip(names, values, strict=True)]


def parameters_from_json(fields: Fields) -> tuple[list[str], list[list[Value]]]:
    """Inverse of :func:`parameters_to_json`; the space itself checks the values."""
    names: list[str] = []
    values: list[list[Value]] = []
    for i, entry in enumerate(fields.sequence("parameters")):
        parameter = Fields(fields.path, f"{fields.position}, parameters[{i}]", entry)
        names.append(parameter.text("name"))
        values.append(parameter.sequence("values"))
        if any(isinstance(value, list | dict) for value in values[-1]):
            raise parameter.error("a value is a list or an object")
    return names, values


def _default_configuration(fields: Fields) -> Mapping[str, Value] | None:
    default = fields.get("default_configuration")
    if default is None:
        return None
    if not isinstance(default, dict) or any(isinstance(v, list | dict) for v in default.values()):
        raise fields.error("'default_configuration' must map names to single values")
    return default


def _numbers(fields: Fields, key: str) -> Mapping[str, float]:
    entries = fields.mapping(key)
    numbers = {name: as_number(value) for name, value in entries.items()}
    if any(number is None for number in numbers.values()):
        raise fields.error(f"{key!r} must map names to numbers")
    return {name: number for name, number in numbers.items() if number is not None}


def _texts(fields: Fields, key: str) -> Mapping[str, str]:
    texts = fields.mapping(key)
    if not all(isinstance(value, str) for value in texts.values()):
        raise fields.error(f"{key!r} must map names to strings")
    return texts
