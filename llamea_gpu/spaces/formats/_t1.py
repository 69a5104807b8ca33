"""T1 files: the description of a search space that goes with a T4 file.

Gives each parameter's values in order, the constraints (evaluated safely, see
:mod:`llamea_gpu.spaces.constraints`), defaults and what is said of the kernel. Whether every valid
configuration was measured is decided without visiting the whole product: a constraint is tabulated
over the parameters it mentions, and the tables are combined as boolean arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.spaces.constraints import Constraint, parse_constraint, parse_values
from llamea_gpu.spaces.formats._base import Fields, RowCollector, format_errors, parse_json
from llamea_gpu.spaces.formats._files import read_text
from llamea_gpu.spaces.parameters import checked_names, checked_values
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Value

# Constraints over more combinations than this, all told, are only checked on the measured rows;
# the second bound is of combinations times characters of the constraint, for the time they take.
_MAX_TABULATED = 2_000_000
_MAX_TABULATION_WORK = 100_000_000
# More rows times characters than this (about a minute) are not checked at all.
_MAX_ROW_WORK = 400_000_000
# More combinations of constrained parameters than this (64 MB) are not counted.
_MAX_PRODUCT = 1 << 26


@dataclass(frozen=True)
class T1:
    """What a T1 file says.

    Attributes:
        path: the file.
        names, values: the parameters in order.
        constraints: all must hold.
        default_configuration: None unless every parameter has a default.
        benchmark, kernel, language: empty when not given.
        arguments: of the kernel, as in the file.
    """

    path: Path
    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    constraints: tuple[Constraint, ...]
    default_configuration: Mapping[str, Value] | None
    benchmark: str
    kernel: str
    language: str
    arguments: tuple[Mapping[str, object], ...]


def read_t1(path: Path) -> T1:
    """Read a T1 file.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: malformed, or an expression that is not allowed.
    """
    top = Fields(path, "the top level", parse_json(path, read_text(path)))
    space = Fields(path, "ConfigurationSpace", top.mapping("ConfigurationSpace"))
    names, values, defaults = _parameters(path, space.sequence("TuningParameters"))
    kernel = Fields(path, "KernelSpecification", top.get("KernelSpecification") or {})
    general = Fields(path, "General", top.get("General") or {})
    arguments = kernel.get("Arguments") or []
    if not isinstance(arguments, list) or not all(isinstance(a, dict) for a in arguments):
        raise kernel.error("'Arguments' must be an array of objects")
    return T1(
        path=path,
        names=names,
        values=values,
        constraints=_constraints(path, space.get("Conditions") or [], names),
        default_configuration=defaults,
        benchmark=general.text("BenchmarkName", ""),
        kernel=kernel.text("KernelName", ""),
        language=kernel.text("Language", ""),
        arguments=tuple(arguments),
    )


def check_coverage(rows: RowCollector, t1: T1) -> tuple[bool, tuple[str, ...]]:
    """Check measured rows against a T1 file.

    Returns:
        Whether every valid configuration was measured, and a warning when not, or not known.

    Raises:
        SpaceFormatError: a row has a value that the T1 file lacks, or breaks a constraint.
    """
    indices = np.array(rows.indices(t1.values), dtype=np.int64).reshape(-1, len(t1.names))
    with format_errors(t1.path, "Conditions"):
        valid, broken = _count_valid(t1, indices)
        if broken is not None:
            row = _named(t1, indices[broken].tolist())
            constraint = next(c for c in t1.constraints if not c.holds(row))
            raise SpaceFormatError(
                rows.path,
                rows.position(broken),
                f"breaks the constraint {quoted(constraint.expression)} of {t1.path}",
                "Give the T1 file that belongs to these measurements.",
            )
    if valid is None:
        return False, ("too many combinations to tell whether all valid ones were measured",)
    if valid > len(rows):
        return False, (
            f"{valid - len(rows):,} of {valid:,} valid configurations were not measured",
        )
    return True, ()


def _count_valid(t1: T1, rows: npt.NDArray[np.int64]) -> tuple[int | None, int | None]:
    """The number of configurations that satisfy all constraints, and a row that does not.

    Either is None: when there are too many combinations to count, and when all (N, d) rows hold.
    """
    cardinalities = [len(vs) for vs in t1.values]
    mentioned = {name for constraint in t1.constraints for name in constraint.parameters}
    width = {name: len(vs) for name, vs in zip(t1.names, t1.values, strict=True)}
    countable = math.prod(width[name] for name in mentioned) <= _MAX_PRODUCT
    # An axis a parameter, but not for single values: numpy has 32 or 64 axes at most.
    wide = [j for j, n in enumerate(t1.names) if n in mentioned and cardinalities[j] > 1]
    valid: npt.NDArray[np.bool_] = np.ones((), dtype=np.bool_)
    holds = np.ones(len(rows), dtype=np.bool_)
    tabulated = work = row_work = 0
    for constraint in t1.constraints:
        parameters = [t1.names.index(name) for name in constraint.parameters]
        axes = [j for j in parameters if cardinalities[j] > 1]
        combinations = math.prod(cardinalities[j] for j in axes)
        tabulated += combinations
        work += combinations * len(constraint.expression)
        if tabulated <= _MAX_TABULATED and work <= _MAX_TABULATION_WORK:
            table = _tabulate(t1, constraint, parameters)
            holds &= table.reshape([cardinalities[j] for j in axes])[tuple(rows[:, axes].T)]
            if countable:
                valid = valid & table.reshape([cardinalities[j] if j in axes else 1 for j in wide])
            continue
        countable = False
        row_work += len(rows) * len(constraint.expression)
        if row_work > _MAX_ROW_WORK:
            raise SpaceError("the constraints must be computable in a minute, but are too many")
        holds &= [constraint.holds(_named(t1, row)) for row in rows.tolist()]
    broken = None if holds.all() else int(np.argmin(holds))
    if not countable:
        return None, broken
    # Parameters that no constraint mentions multiply the count without widening the array.
    free = math.prod(c for j, c in enumerate(cardinalities) if j not in wide)
    return int(np.count_nonzero(valid)) * free, broken


def _tabulate(t1: T1, constraint: Constraint, axes: Sequence[int]) -> npt.NDArray[np.bool_]:
    combinations = itertools.product(*[t1.values[j] for j in axes])
    return np.array(
        [
            constraint.holds(dict(zip(constraint.parameters, combination, strict=True)))
            for combination in combinations
        ],
        dtype=np.bool_,
    )


def _named(t1: T1, row: Sequence[int]) -> dict[str, Value]:
    return {name: vs[i] for name, vs, i in zip(t1.names, t1.values, row, strict=True)}


def _parameters(
    path: Path, entries: Sequence[Any]
) -> tuple[tuple[str, ...], tuple[tuple[Value, ...], ...], Mapping[str, Value] | None]:
    names: list[str] = []
    values: list[tuple[Value, ...]] = []
    defaults: dict[str, Value] = {}
    for i, entry in enumerate(entries):
        fields = Fields(path, f"TuningParameters[{i}]", entry)
        name = fields.text("Name")
        parameter_values = fields.get("Values")
        with format_errors(path, fields.position):
            if isinstance(parameter_values, str):
                parameter_values = parse_values(parameter_values)
            if not isinstance(parameter_values, list | tuple):
                raise fields.error("'Values' must be a list, or the text of one")
            if any(isinstance(value, list | dict) for value in parameter_values):
                raise fields.error("a value is a list or an object")
            names.append(name)
            values.append(checked_values(name, parameter_values))
        default = fields.get("Default")
        if "Default" in fields and not isinstance(default, list | dict):
            defaults[name] = default
    with format_errors(path, "TuningParameters"):
        checked = checked_names(names)
    complete = len(defaults) == len(checked)
    return checked, tuple(values), defaults if complete else None


def _constraints(
    path: Path, entries: Sequence[Any], names: Sequence[str]
) -> tuple[Constraint, ...]:
    if not isinstance(entries, list):
        raise SpaceFormatError(path, "Conditions", "must be an array", "Mend that entry.")
    constraints = []
    for i, entry in enumerate(entries):
        fields = Fields(path, f"Conditions[{i}]", entry)
        with format_errors(path, fields.position):
            constraints.append(parse_constraint(fields.text("Expression"), names))
    return tuple(constraints)
