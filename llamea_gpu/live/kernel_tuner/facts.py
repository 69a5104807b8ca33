"""What Kernel Tuner's own objects tell of a live kernel, for searchers that know more than values.

What it does: describes kernel, arguments and device from the runner of a ``tune_kernel`` call, or
from the script that the call was made of; says why a configuration failed.

What it does not do: measure, or import Kernel Tuner. Kernel Tuner's own strategies need nothing
here: they run under the optimizer contract.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamea_gpu.contract import Configuration, Optimizer
from llamea_gpu.frameworks.kernel_tuner.kernel_script import (
    KernelScript,
    argument_facts,
    source_text,
)
from llamea_gpu.live.kernel_tuner.runtime import (
    KernelTunerEvaluate,
    KernelTunerSpace,
)
from llamea_gpu.live.kernel_tuner.tolerant import MESSAGE
from llamea_gpu.live.searcher import KernelFacts
from llamea_gpu.searchers.library import LibrarySearcher, require
from llamea_gpu.spaces.recording import RecordingInfo

_FAILURES = {
    "InvalidConfig": "cannot be launched on this device",
    "CompilationFailedConfig": "does not compile",
    "RuntimeFailedConfig": "fails when it runs",
}
Results = Sequence[Mapping[str, Any]]


class KernelTunerFramework:
    """Kernel Tuner, for `llamea_gpu.live.searcher`.

    Args:
        script: what ``tune_kernel`` was called with, where that is known; without it the runner is
            asked.
        on_batch: told of all results so far after each batch.

    ``told`` is what the last run was told of its kernel.
    """

    def __init__(
        self,
        script: KernelScript | None = None,
        on_batch: Callable[[Results], None] = lambda _: None,
    ) -> None:
        self._script = script
        self._on_batch = on_batch
        self.told: KernelFacts | None = None

    def facts(self, evaluate: KernelTunerEvaluate, space: KernelTunerSpace) -> KernelFacts:
        """Kernel, arguments and device, from the script or from Kernel Tuner's runner."""
        runner = evaluate.func.runner
        kernel, script = runner.kernel_source, self._script
        options = runner.kernel_options
        version = require("kernel_tuner", "kernel-tuner", "live tuning")
        language = str(kernel.lang)
        problem = script.problem_size() if script else str(getattr(options, "problem_size", ""))
        self.told = KernelFacts(
            info=RecordingInfo(
                name=script.name if script else str(kernel.kernel_name),
                kernel=str(kernel.kernel_name),
                device=device_name(runner),
                framework=f"Kernel Tuner {version} ({language})",
                kernel_source=script.kernel_text() if script else _source(kernel),
                arguments=script.argument_facts() if script else _arguments(options),
                provenance={"problem_size": problem} if problem else {},
            ),
            default=self._default(space),
            notes=_notes(script),
        )
        return self.told

    def failure(self, evaluate: KernelTunerEvaluate, config: Configuration) -> str | None:
        """What Kernel Tuner says of a configuration that did not work."""
        space = evaluate.space
        values = space.native[space.row(config)]
        for result in reversed(evaluate.func.results):
            if tuple(result[name] for name in space.names) == tuple(values):
                word = str(result.get("__error__", ""))
                said = str(result.get(MESSAGE, ""))
                return ": ".join(filter(None, [_FAILURES.get(word, word), said])) or None
        return None

    def own_search(self, searcher: LibrarySearcher, evaluate: Any, space: Any) -> Optimizer | None:
        """None: its strategies run under the contract."""
        del searcher, evaluate, space
        return None

    def batch_measured(self, evaluate: KernelTunerEvaluate, space: KernelTunerSpace) -> None:
        """Pass on what has been measured."""
        del space
        self._on_batch(evaluate.func.results)

    def _default(self, space: KernelTunerSpace) -> Configuration | None:
        named = self._script.default_configuration if self._script else None
        if named is None:
            return None
        try:
            found = tuple(v.index(named[n]) for n, v in zip(space.names, space.values, strict=True))
        except ValueError:  # a value that is not among the tunable ones
            return None
        return found if space.contains(found) else None


def device_name(runner: Any) -> str:
    """Of a runner's device; a compiler for the host has none."""
    return str(getattr(runner.dev, "name", "")) or platform.machine()


def _source(kernel: Any) -> str:
    return "\n".join(source_text(part) for part in kernel.kernel_sources)


def _arguments(options: Any) -> tuple[Mapping[str, object], ...]:
    return tuple(argument_facts(argument) for argument in getattr(options, "arguments", ()) or ())


def _notes(script: KernelScript | None) -> tuple[str, ...]:
    if script is None:
        return ()
    said = [f"restriction: {text}" for text in script.constraints()]
    return (*([script.note] if script.note else []), *said)
