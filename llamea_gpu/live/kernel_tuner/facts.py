"""What Kernel Tuner's own objects tell of a live kernel, for searchers that know more than values.

What it does: describes kernel, arguments and device from the runner of a ``tune_kernel`` call, or
from the script that the call was made of; says why a configuration failed.

What it does not do: measure. Kernel Tuner's own strategies need nothing
here: they run under the optimizer contract.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_tuner.util import get_result_cost

from llamea_gpu.contract import Configuration, KernelFacts, Optimizer
from llamea_gpu.frameworks.kernel_tuner.kernel_script import (
    KernelScript,
    argument_facts,
    source_text,
)
from llamea_gpu.live.kernel_tuner.runtime import KernelTunerEvaluate, KernelTunerSpace
from llamea_gpu.searchers.library import LibrarySearcher, require
from llamea_gpu.spaces.recording import RecordingInfo

MESSAGE = "llamea_gpu_message"  # in a result, beside Kernel Tuner's "__error__"
_FAILURES = {
    "InvalidConfig": "cannot be launched on this device",
    "CompilationFailedConfig": "does not compile",
    "RuntimeFailedConfig": "fails when it runs",
}


class ExplainingEvaluate(KernelTunerEvaluate):
    """An evaluate that says why a configuration failed, and goes on from an earlier run."""

    def remember(self, known: Sequence[tuple[int, Mapping[str, Any]]], used_s: float) -> None:
        """Results of an earlier run, by row: they are as if they had been measured in this one.

        ``used_s`` are the seconds that it had come to.
        """
        func, options = self.func, self.func.tuning_options
        options.budget.add_evaluations(len(known))
        options.budget.add_time(seconds=used_s)
        for row, result in known:
            func.results.append(result)
            (cost,) = get_result_cost(result, options.objective, options.objective_higher_is_better)
            self._note_cost(row, cost)
        func.budget_spent_fraction = options.budget.get_fraction_consumed()

    def failure(self, config: Configuration) -> str | None:
        """What Kernel Tuner says of a configuration that did not work."""
        values = self.space.native[self.space.row(config)]
        for result in reversed(self.func.results):
            if tuple(result[name] for name in self.space.names) == tuple(values):
                error = str(result.get("__error__", ""))
                message = str(result.get(MESSAGE, ""))
                return ": ".join(filter(None, [_FAILURES.get(error, error), message])) or None
        return None


class KernelTunerFramework:
    """Kernel Tuner, for `llamea_gpu.live.searcher`.

    ``script`` is what ``tune_kernel`` was called with, where that is known; without it the runner
    is asked.
    """

    def __init__(self, script: KernelScript | None = None) -> None:
        self._script = script

    def facts(self, evaluate: KernelTunerEvaluate, space: KernelTunerSpace) -> KernelFacts:
        """Kernel, arguments and device, from the script or from Kernel Tuner's runner."""
        runner = evaluate.func.runner
        kernel, options, script = runner.kernel_source, runner.kernel_options, self._script
        version = require("kernel_tuner", "kernel-tuner", "live tuning")
        if script is not None:
            source, arguments = script.kernel_text(), script.argument_facts()
            problem = script.problem_size()
            restrictions = [f"restriction: {text}" for text in script.constraints()]
            notes = tuple(filter(None, [script.note, *restrictions]))
        else:
            source = "\n".join(map(source_text, kernel.kernel_sources))
            arguments = tuple(map(argument_facts, getattr(options, "arguments", ()) or ()))
            problem = str(getattr(options, "problem_size", ""))
            notes = ()
        return KernelFacts(
            info=RecordingInfo(
                name=script.name if script else str(kernel.kernel_name),
                kernel=str(kernel.kernel_name),
                device=device_name(runner),
                framework=f"Kernel Tuner {version} ({kernel.lang})",
                kernel_source=source,
                arguments=arguments,
                provenance={"problem_size": problem} if problem else {},
            ),
            default=self._default(space),
            notes=notes,
        )

    def own_search(self, searcher: LibrarySearcher, evaluate: Any, space: Any) -> Optimizer | None:
        """None: its strategies run under the contract."""
        del searcher, evaluate, space
        return None

    def _default(self, space: KernelTunerSpace) -> Configuration | None:
        by_name = self._script.default_configuration if self._script else None
        if by_name is None:
            return None
        try:
            default = tuple(
                v.index(by_name[n]) for n, v in zip(space.names, space.values, strict=True)
            )
        except ValueError:  # a value that is not among the tunable ones
            return None
        return default if space.contains(default) else None


def device_name(runner: Any) -> str:
    """Of a runner's device; a compiler for the host has none."""
    return str(getattr(runner.dev, "name", "")) or platform.machine()
