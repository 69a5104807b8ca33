"""The prompts of the LLM-config proposer: ``prompts/proposer/*.j2`` and what fills them.

The first one describes a kernel, its GPU and its whole search space; the others are the same text
followed by what has been measured. A request thus needs no earlier one, and servers can cache
the beginning, which stays the same for a run.

Deterministic, like every prompt; text from a kernel, a model or a compiler enters as values only.
Not here: what the numbers are (`llamea_gpu.searchers.llm`), and sending.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamea_gpu.contract import DeviceFacts
from llamea_gpu.prompting.render import environment

_MAX_SOURCE_CHARS = 24_000


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: a tensor, or with neither shape nor dtype some other value.

    ``strides`` are in elements; None where nobody recorded them.
    """

    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    strides: tuple[int, ...] | None = None
    value: str = ""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds on the time of one call.

    ``flops`` is 0 where only the bytes are known; ``gb`` is the least traffic to device memory.
    """

    gb: float
    memory_ms: float
    says: str
    flops: float = 0.0
    compute_ms: float | None = None
    format: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is tuned, whatever framework compiles it.

    ``notes`` are further facts, one line each (such as a problem size); ``parallel`` is how many
    configurations compile side by side.
    """

    kernel: str
    framework: str
    device: str
    source: str = ""
    arguments: tuple[Argument, ...] = ()
    facts: DeviceFacts | None = None
    roofline: Roofline | None = None
    notes: tuple[str, ...] = ()
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of a configuration: ``values`` as JSON texts, and a list's ``length`` (else 0).

    Of a list whose elements do not all have the same values, ``elements`` has those of each, and
    ``values`` is empty. ``default`` is a JSON text, empty where there is no default configuration.
    """

    name: str
    values: tuple[str, ...]
    length: int = 0
    elements: tuple[tuple[str, ...], ...] = ()
    default: str = ""


@dataclass(frozen=True, slots=True)
class SpaceDescription:
    """The whole space. ``size`` is None where nobody can count it; ``rules`` are its constraints.

    ``example`` is a valid configuration as JSON.
    """

    parameters: tuple[Parameter, ...]
    fixed: tuple[tuple[str, str], ...]
    combinations: int
    size: int | None
    rules: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Result:
    """A measured configuration: ``change`` is how it differs from the best; inf is a failure."""

    change: str
    time_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """For one parameter: (value, least time in ms, times measured, times failed) of each value."""

    name: str
    values: tuple[tuple[str, float, int, int], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What the run has measured, for a refinement.

    Attributes:
        round: the number of this request, from 1; rounds: how many there will be at most.
        measured: configurations so far, ``failed`` of them failures.
        best: the best configuration as JSON; empty when nothing works yet.
        best_ms: its time; default_ms: the default configuration's; None where there is none.
        is_default: the best is the default configuration.
        gain: relative gain of the last round, 0.02 for 2 %; None before the second.
        leaders: the best others, best first; last: what the last answer's configurations did.
        common: parameters and the one value that all of the top share.
        effects: what each value has done so far.
        failures: failed configurations in words; suspects: what only failures have.
        notes: what was repaired or refused of the last answer, and why.
    """

    round: int
    rounds: int
    measured: int
    failed: int
    best: str
    best_ms: float | None
    default_ms: float | None
    gain: float | None
    is_default: bool = False
    leaders: tuple[Result, ...] = ()
    last: tuple[Result, ...] = ()
    common: tuple[tuple[str, str], ...] = ()
    top: int = 0
    effects: tuple[ValueEffect, ...] = ()
    failures: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def render_proposer(
    workload: Workload, space: SpaceDescription, n_configs: int, progress: Progress | None = None
) -> tuple[str, str]:
    """System and user message that ask for ``n_configs`` configurations.

    For the first ones; with ``progress`` for more, after what it reports.
    """
    variables = {
        "workload": workload,
        "space": space,
        "wanted": n_configs,
        "progress": progress,
        "source": workload.source[:_MAX_SOURCE_CHARS],
        "source_cut": len(workload.source) > _MAX_SOURCE_CHARS,
    }
    system = environment().get_template("proposer/system.j2").render(variables)
    template = "first" if progress is None else "refine"
    user = environment().get_template(f"proposer/{template}.j2").render(variables)
    return system.strip() + "\n", user.strip() + "\n"
