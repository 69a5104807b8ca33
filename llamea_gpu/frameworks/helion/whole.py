"""The real space of a cloud's kernel, on a machine without its GPU.

What it does: binds the kernel of a cloud for the GPU that the cloud was measured on, pretended
(`llamea_gpu.frameworks.helion.static`), once in a process, and gives every run a `HelionSpace` of
it with a memory of its own; checks that parameters, values and order are the cloud's.

What it does not do: measure, or guess where the installed Helion's parameters are other ones. The
clouds of Helion 1.5.0 that came with the project's recordings fit 1.5.1 to the last value.

One GPU is pretended at a time in a process (`BoundKernel.pretended`), and Helion draws from
Python's global generator: runs on whole spaces follow one another, in worker processes of their
own (`llamea_gpu.runner`).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import importlib.util
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import RecordingError, SpaceError
from llamea_gpu.files import open_regular, read_text, write_atomically
from llamea_gpu.frameworks.helion.normal_form import NormalForm, NoTablesError
from llamea_gpu.models.model import cache_folder

if TYPE_CHECKING:
    from llamea_gpu.frameworks.helion.kernel_script import KernelCase
    from llamea_gpu.frameworks.helion.space import HelionSpace
    from llamea_gpu.frameworks.helion.static import PretendedGpu
    from llamea_gpu.spaces.cloud import Cloud

KERNELS_VARIABLE = "LLAMEA_GPU_KERNELS"  # folders of the user's own kernel scripts
# Normalised configurations of a kernel that a process keeps from run to run, about half a kilobyte
# each.
_MOST_KEPT = 100_000
_DRAWS = 4096  # random configurations of each kind that are kept
# Parameters that Helion has had since 1.5.1, and what its ConfigSpec knows of them. A space that
# was measured without has them off, which is their default.
_OPTIONAL = {"reduction_fusion": "reduction_fusion_available"}
_bound: dict[tuple[Path, str, str, tuple[str, ...]], BoundKernel] = {}


@dataclass(eq=False)
class BoundKernel:
    """A kernel bound for a pretended GPU, and its space.

    ``bound`` is Helion's ``BoundKernel``, ``template`` the space of which each run gets a copy.
    Both are to be used within `pretended`.
    """

    gpu: str
    case: KernelCase
    bound: Any
    template: HelionSpace

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Tensors without contents, on the pretended GPU."""
        return self.case.arguments

    @contextlib.contextmanager
    def pretended(self) -> Iterator[PretendedGpu]:
        """Within, this process has the kernel's GPU, as far as software asks."""
        from llamea_gpu.frameworks.helion.static import pretend_gpu

        with pretend_gpu(self.gpu) as gpu:
            yield gpu

    def space(
        self,
        rng: np.random.Generator,
        starts: Sequence[tuple[int, ...]],
        default: tuple[int, ...] | None,
    ) -> HelionSpace:
        """The space of one run, which begins at ``starts``.

        What normalising gives is kept from run to run, since nothing else of a run shows in it.
        """
        template = self.template
        if len(template._canonical) > _MOST_KEPT:
            template._canonical.clear()
            template._neighbors.clear()
        space = copy.copy(template)
        space._rng = rng
        space._pooled, space.leaders = {}, []
        space.default, space.starts = default, list(starts)
        space._unsampled, space._anchor = list(starts), list(starts[:1])
        return space


@dataclass(frozen=True, eq=False)
class BoundSpace:
    """The `HelionSpace` of one run and its `BoundKernel`: what Helion's own searches run on."""

    kernel: Any
    space: Any


def bind(cloud: Cloud) -> BoundKernel:
    """The kernel of ``cloud``, as bound in this process before or bound now (some seconds).

    Raises:
        SpaceError: Helion is not installed, the kernel script is not here or does not load, the GPU
            is none that can be pretended, or a parameter is not what it was.
    """
    if importlib.util.find_spec("helion") is None:
        raise SpaceError(
            f"{cloud.info.name} is a whole space of Helion, whose rules Helion itself must apply, "
            f"but it is not installed: pip install 'llamea-gpu[helion]'"
        )
    gpu = _gpu(cloud)
    try:
        script = _script(cloud)
        off = tuple(name for name in _OPTIONAL if name not in cloud.names)
        key = (script, cloud.shape, gpu, off)
        if key not in _bound:
            _bound[key] = _bind(*key)
    except RecordingError as error:
        raise SpaceError(f"{cloud.info.name}: {error}") from error
    kernel = _bound[key]
    _check(cloud, kernel.template)
    return kernel


def _bind(script: Path, shape: str, gpu: str, off: tuple[str, ...]) -> BoundKernel:
    from llamea_gpu.frameworks.helion.static import pretend_gpu

    with pretend_gpu(gpu) as pretended:
        case = pretended.load_case(script, shape or None)
        bound = pretended.bind(case.kernel, case.arguments)
        for name in off:
            setattr(bound.config_spec, _OPTIONAL[name], False)
        generation = bound.config_spec.create_config_generation()
        seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
        key = (read_text(script), shape, gpu, *off)
        return BoundKernel(gpu, case, bound, _shared_space(generation, seeds, key))


class _Drawn(list[Any]):
    """A random flat configuration, and the value indices nearest to it once they are known."""

    nearest: tuple[int, ...] = ()


class _Draws:
    """Helion's generator of configurations with its random ones kept, some thousands of them.

    A draw takes Helion a millisecond, and `HelionSpace` takes but a few values from each, to change
    one of the best with.
    """

    def __init__(self, generation: Any) -> None:
        self._generation = generation
        self._kept: dict[tuple[str, int], _Drawn] = {}

    def random_flat(self) -> _Drawn:
        """As Helion's."""
        return self._draw("random_flat")

    def biased_random_flat(self) -> _Drawn:
        """As Helion's."""
        return self._draw("biased_random_flat")

    def _draw(self, kind: str) -> _Drawn:
        number = random.randrange(_DRAWS)  # noqa: S311
        if (kind, number) not in self._kept:
            state = random.getstate()
            random.seed(number)
            try:
                self._kept[kind, number] = _Drawn(getattr(self._generation, kind)())
            finally:
                random.setstate(state)
        return self._kept[kind, number]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generation, name)


def _shared_space(
    generation: Any, seeds: Sequence[list[Any]], kernel: tuple[str, ...]
) -> HelionSpace:
    """The space that runs copy; ``kernel`` is its script's text, shape, GPU and what is off."""
    from llamea_gpu.frameworks.helion.space import HelionSpace

    class SharedSpace(HelionSpace):
        """A space in whose answers no other run shows."""

        form: NormalForm | None = None

        def _nearest(self, flat: list[Any]) -> tuple[int, ...]:
            if not isinstance(flat, _Drawn):
                return super()._nearest(flat)
            flat.nearest = flat.nearest or super()._nearest(flat)
            return flat.nearest

        def canonical(self, config: Sequence[int]) -> tuple[int, ...] | None:
            if type(config) is tuple and (normal := self._canonical.get(config)) is not None:
                return normal
            return super().canonical(config)

        def _normalise(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
            if self.form is None:
                return self.asked(key)
            try:
                return self.form.of(key)
            except NoTablesError:
                type(self).form = None
                return self.asked(key)

        def asked(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
            """What Helion says."""
            # What has values that are not on the lists goes by the name it was first asked for
            # under: here each is its own, or that would depend on the runs before.
            self._off_the_lists.clear()
            return super()._normalise(key)

    space = SharedSpace(generation, np.random.default_rng(0), seeds)
    space._config_gen = _Draws(space._config_gen)
    SharedSpace.form = _form(space, kernel)
    return space


def _form(space: Any, kernel: tuple[str, ...]) -> NormalForm | None:
    """Its normal form: recalled from the cache folder, or learnt (some seconds) and kept there."""
    facts = (*kernel, space.names, space.values, space.ordinal, space.starts, *_versions())
    file = cache_folder() / f"normal-form-{hashlib.sha256(repr(facts).encode()).hexdigest()}.npy"
    try:
        with open_regular(file) as stream:
            saved_answers = np.load(stream, allow_pickle=False)
        return NormalForm.recalled(space.asked, space.cardinalities, saved_answers)
    except (OSError, ValueError, EOFError, NoTablesError):
        form = NormalForm.learn(space.asked, space.cardinalities, space.starts)
    if form is not None:
        answers = form.answers
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, lambda temporary: _save(temporary, answers))
    return form


def _save(file: Path, answers: NDArray[np.int64]) -> None:
    with file.open("wb") as stream:
        np.save(stream, answers.astype(np.int16), allow_pickle=False)


def _versions() -> Iterator[str]:
    """Of all that has a say in what Helion makes of a configuration."""
    for package in ("helion", "torch", "triton", "llamea-gpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield f"{package} {importlib.metadata.version(package)}"


def _script(cloud: Cloud) -> Path:
    """By name alone: what a file says is no reason to run just any script."""
    from llamea_gpu.frameworks.helion.kernel_script import shipped_kernels

    folders = os.environ.get(KERNELS_VARIABLE, "").split(os.pathsep)
    known = {
        path.stem: path for folder in filter(None, folders) for path in Path(folder).glob("*.py")
    }
    known |= shipped_kernels()
    if cloud.script not in known:
        raise RecordingError(
            f"its kernel script must ship or lie in a folder of ${KERNELS_VARIABLE}, but "
            f"{cloud.script!r} is none of {', '.join(sorted(known))}"
        )
    return known[cloud.script]


def _gpu(cloud: Cloud) -> str:
    from llamea_gpu.frameworks.helion.static import GPUS

    device = cloud.info.device
    for key, facts in GPUS.items():
        if device in (key, facts.name):
            return key
    raise SpaceError(
        f"{cloud.info.name} was measured on {device!r}; without it, a GPU must be one of "
        f"{', '.join(facts.name for facts in GPUS.values())}, whose facts are known"
    )


def _check(cloud: Cloud, space: HelionSpace) -> None:
    """Whether the installed Helion gives the parameters that were measured.

    Raises:
        SpaceError: it does not; names the first that differs.
    """
    problem = _difference(cloud, space)
    if problem:
        measured_with = ", ".join(
            dict.fromkeys(run["helion"] for run in cloud.runs if "helion" in run)
        )
        raise SpaceError(
            f"{cloud.info.name} must have the parameters that the installed Helion "
            f"({importlib.metadata.version('helion')}) gives its kernel script, but {problem}: "
            f"use the Helion that it was measured with ({measured_with or cloud.info.framework}), "
            f"or measure it again"
        )


def _difference(cloud: Cloud, space: HelionSpace) -> str:
    for number, name in enumerate(cloud.names):
        if number >= len(space.names) or space.names[number] != name:
            here = space.names[number] if number < len(space.names) else "none"
            return f"parameter {number} is {name}, and here {here}"
        for attribute, measured, installed in (
            ("values", cloud.values, space.values),
            ("ordinal", cloud.ordinal, space.ordinal),
        ):
            if measured[number] != installed[number]:
                return f"{attribute} of {name} are {measured[number]}, and here {installed[number]}"
    if len(space.names) > len(cloud.names):
        return f"{space.names[len(cloud.names)]} is not among them"
    wrong = [start for start in cloud.starts if space.canonical(start) != start]
    if wrong:
        return f"{space.canonical(wrong[0])} is what it makes of {wrong[0]}"
    return ""
