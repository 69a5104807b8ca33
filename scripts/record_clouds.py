"""Clouds of whole Helion ConfigSpecs, for a list of kernels within a deadline, on a GPU machine.

    PYTHONPATH=. python scripts/record_clouds.py OUT --deadline 560 --seconds 60 softmax rope:large

Each kernel gets ``--seconds``, starting included, and is recorded as by ``llamea-gpu spaces record
helion KERNEL --whole N``; PyTorch, Triton and Helion are imported once for all of them. A line a
kernel, also in ``OUT/log.txt``. When a kernel is done its cloud is in ``OUT/clouds.tar.gz``; what
is being measured is beside it, so that no more than four files are there, and nothing is lost when
this is killed. The same call goes on: kernels in the archive are left out, a journal is continued.
It ends by itself before ``--deadline`` seconds are over, and in order at SIGTERM and Ctrl-C.

A kernel is a shipped one or a script, with ``:SHAPE`` if not the usual one; or a file of points
(``FILE.jsonl``, as ``spaces model --propose`` writes them), of which nothing else is measured. More
of a kernel is recorded into another OUT; ``llamea-gpu spaces import A.cloud.parquet
B.cloud.parquet -o BOTH.cloud.parquet`` merges them.
"""

# Besides llamea_gpu (numpy, scipy, scikit-learn, pyarrow, rich, typer, jinja2) this needs helion,
# torch and triton.

from __future__ import annotations

import argparse
import importlib
import signal
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import FrameType

from llamea_gpu.engine.journal import journal_path
from llamea_gpu.engine.template import Template
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.files import write_atomically
from llamea_gpu.frameworks.helion.kernel_script import find_script
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.recording._base import HelionSettings
from llamea_gpu.recording.clouds import SEARCHERS, CloudOutcome, MixtureSettings
from llamea_gpu.recording.helion.cloud import TIMEOUTS_S, record_cloud
from llamea_gpu.spaces.formats.cloud_lines import Points, read_points

# Those whose clouds ship come last: more of the same.
KERNELS = (
    *("softmax", "layer_norm", "cross_entropy", "fp8_matmul", "swiglu", "rms_norm"),
    *("kl_divergence", "matmul_gelu", "batched_matmul", "row_sum"),
    *("rope", "chunk_scan", "grouped_matmul", "matmul", "attention"),
)
ARCHIVE = "clouds.tar.gz"
LOG = "log.txt"
_POINTS = ".jsonl"
_LEAST_S = 20.0  # a kernel gets this long or does not begin
_END_S = 8.0  # for ending processes, writing and packing


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    begin = monotonic()
    end = begin + options.deadline
    signal.signal(signal.SIGTERM, _interrupt)
    options.out.mkdir(parents=True, exist_ok=True)
    done = _archived(options.out / ARCHIVE)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-clouds-"))
        template = stack.enter_context(Template(PRELOAD, Path(folder) / "template.log"))
        for name in PRELOAD:  # once for all, while the template does the same
            importlib.import_module(name)
        _say(options.out, f"imports: {monotonic() - begin:.0f} s")
        for kernel in options.kernels:
            if _file_name(kernel) in done:
                continue
            seconds = min(options.seconds, end - monotonic() - _END_S)
            if seconds < _LEAST_S:
                _say(options.out, f"{kernel}: no time left")
                break
            if _record(kernel, seconds, options, template):
                break


def _record(kernel: str, seconds: float, options: argparse.Namespace, template: Template) -> bool:
    """One kernel; whether somebody wants it all to end."""
    output = options.out / _file_name(kernel)
    interrupted, start = False, monotonic()
    try:
        name, shape, points = _named(kernel)
        mixture = MixtureSettings(
            options.measurements if points is None else len(dict(points.rows)),
            searchers=tuple(options.searcher),
            points=points,
        )
        settings = HelionSettings(
            **TIMEOUTS_S,
            seconds=seconds,
            shape=shape or None,
            compilers=options.compilers,
            seed=options.seed,
            command=f"scripts/record_clouds.py --seconds {options.seconds:g} {Path(kernel).name}",
        )
        outcome = record_cloud(find_script(name), output, mixture, settings, template=template)
        interrupted = outcome.interrupted
        _say(options.out, f"{kernel}: {_told(outcome)}")
    except KeyboardInterrupt:
        interrupted = True
    except LlameaGpuError as error:
        _say(options.out, f"{kernel}: {monotonic() - start:.0f} s, {error}")
    except Exception:  # the others go on
        _say(options.out, f"{kernel}: {monotonic() - start:.0f} s\n{traceback.format_exc()}")
    if not interrupted and output.exists():
        _pack(output, options.out / ARCHIVE)
    return interrupted


def _told(outcome: CloudOutcome) -> str:
    """A kernel's line."""
    cloud = outcome.cloud
    troubles = "".join(f"; {name}: {why}" for name, why in outcome.troubles.items())
    if cloud is None:
        return f"{outcome.elapsed_s:.0f} s, nothing measured{troubles}"
    mine = cloud.at_s[cloud.run == cloud.run[-1]]
    rate = (len(mine) - 1) / max(float(mine[-1] - mine[0]), 1e-9)
    default_ms = cloud.info.references_ms.get("helion_default", float("nan"))
    return (
        f"{outcome.elapsed_s:.0f} s, {outcome.done} measured, {rate:.1f} a second, first after "
        f"{mine[0]:.1f} s, {1 - cloud.ok.mean():.1%} failing, best {cloud.best_ms:.6g} ms, default "
        f"{default_ms:.6g} ms{' (interrupted)' * outcome.interrupted}{troubles}"
    )


def _named(kernel: str) -> tuple[str, str, Points | None]:
    """Script, shape and points of what was named on the command line."""
    if kernel.endswith(_POINTS):
        points = read_points(Path(kernel))
        return points.script, points.shape, points
    name, _, shape = kernel.partition(":")
    return name, shape, None


def _file_name(kernel: str) -> str:
    if kernel.endswith(_POINTS):
        return f"{Path(kernel).name.removesuffix(_POINTS)}.cloud.parquet"
    name, _, shape = kernel.partition(":")
    return f"{Path(name).stem}{'-' * bool(shape)}{shape}.cloud.parquet"


def _archived(archive: Path) -> set[str]:
    if not archive.exists():
        return set()
    with tarfile.open(archive) as opened:
        return set(opened.getnames())


def _pack(cloud: Path, archive: Path) -> None:
    """Move a cloud into the archive, which is whole at any moment."""
    write_atomically(archive, _with(cloud, archive))
    cloud.unlink()
    journal_path(cloud).unlink(missing_ok=True)


def _with(cloud: Path, archive: Path) -> Callable[[Path], None]:
    def fill(temporary: Path) -> None:
        with tarfile.open(temporary, "w:gz") as packed:
            if archive.exists():
                with tarfile.open(archive) as before:
                    for member in before:
                        packed.addfile(member, before.extractfile(member))
            packed.add(cloud, cloud.name)

    return fill


def _say(out: Path, text: str) -> None:
    print(text, flush=True)
    with (out / LOG).open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL[:SHAPE]")
    parser.add_argument("--deadline", type=float, required=True, help="seconds for all of it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kernel")
    parser.add_argument("--measurements", type=int, default=20_000, help="at most, of each kernel")
    parser.add_argument("--compilers", type=int, help="default: the free cores")
    parser.add_argument("--searcher", action="append", help="repeatable; default: three")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_intermixed_args(arguments)
    options.searcher = options.searcher or list(SEARCHERS)
    return options


if __name__ == "__main__":
    main()
