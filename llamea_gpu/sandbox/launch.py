"""The command that starts a zygote: plain, or inside bubblewrap with nothing of the host in view.

It finds the interpreter, the libraries and this package's own code. It starts nothing itself.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import llamea_gpu
from llamea_gpu.errors import SandboxError
from llamea_gpu.sandbox.preload import KERNEL_TUNER_NEEDS, LIBRARIES, THEIR_NEEDS

# No user or site hooks (-s, -S); sys.path is the standard library and the folders given.
_BOOTSTRAP = (
    "import sys; sys.path = [p for p in sys.path if p] + sys.argv[2:]; "
    "from llamea_gpu.sandbox.zygote import main; main(int(sys.argv[1]))"
)
_THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "VECLIB_MAXIMUM")
_LINKER_PATH = "LD_LIBRARY_PATH"
# Which of its kernels NumPy's linear algebra uses: a program is to compute the same, to the last
# digit, in the sandbox and in this process.
_ARITHMETIC = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES")
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
    # Without it, Python 3.13 asks for the working directory before it raises an AttributeError of
    # a module, and a child may not know that.
    "PYTHONSAFEPATH": "1",
    "JOBLIB_MULTIPROCESSING": "0",
    **{f"{name}_NUM_THREADS": "1" for name in _THREADS},
}

# Shared libraries that wheels bring along.
_WHEEL_LIBRARIES = ("numpy.libs", "scipy.libs", "scikit_learn.libs")
# Kernel Tuner asks for its own version when it is imported.
_WHEEL_METADATA = "kernel_tuner-*.dist-info"
# This package's modules that the zygote imports. Recordings may lie beside them in a wheel.
_OWN_CODE = (
    *("__init__.py", "contract.py", "errors.py", "sandbox", "seeding.py", "spaces"),
    *(f"searchers/{name}" for name in ("__init__.py", "library.py", "kernel_tuner")),
)
_MULTIARCH = f"{platform.machine()}-linux-gnu"
_LINKER_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_INSTALLED = ("site-packages", "dist-packages")


def environment() -> dict[str, str]:
    """All that the zygote and every child see: no key, no home, no search path for programs.

    Some interpreters (those of a cluster's modules, say) start only with their linker path.
    """
    inherited = (_LINKER_PATH, *_ARITHMETIC)
    return _ENVIRONMENT | {name: os.environ[name] for name in inherited if name in os.environ}


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the zygote's code lies on this machine.

    ``interpreter`` is the real file, not a virtual environment's link; ``import_roots`` go on its
    path; ``visible`` are all files and folders that it has to read.
    """

    interpreter: Path
    import_roots: tuple[Path, ...]
    visible: tuple[Path, ...]


def find_installation() -> Installation:
    """Locate interpreter, libraries and own code.

    Raises:
        SandboxError: numpy, scipy or scikit-learn is not installed.
    """
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
    own = Path(llamea_gpu.__file__).resolve().parent
    roots, visible = [own.parent], [own / name for name in _OWN_CODE]
    for name in (*LIBRARIES, *THEIR_NEEDS, *KERNEL_TUNER_NEEDS):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            if name in LIBRARIES:
                raise SandboxError(
                    f"a candidate may use {name}, but it is not installed: pip install llamea-gpu"
                )
            continue
        origin = Path(spec.origin)
        is_package = bool(spec.submodule_search_locations)
        root = origin.parent.parent if is_package else origin.parent
        roots.append(root)
        visible.append(origin.parent if is_package else origin)
        visible += [root / folder for folder in _WHEEL_LIBRARIES]
        visible += root.glob(_WHEEL_METADATA)
    return Installation(interpreter, tuple(dict.fromkeys(roots)), tuple(dict.fromkeys(visible)))


def plain_command(installation: Installation, control_fd: int) -> list[str]:
    """The zygote's command line, without a wrapper."""
    roots = [str(root) for root in installation.import_roots]
    return [str(installation.interpreter), "-sS", "-c", _BOOTSTRAP, str(control_fd), *roots]


def bubblewrap_command(program: str, installation: Installation, control_fd: int) -> list[str]:
    """The same in new namespaces, with a file system that holds code and nothing else.

    No /proc, /sys, /tmp or /dev. As root the user namespace is kept, so that children can become a
    different user on the host too (bubblewrap would map root to root); every capability but those
    for that is dropped. ``--die-with-parent`` is not used (it means the *thread* that started it),
    nor is ``--new-session``: the whole process group can then be killed.
    """
    command = [program, "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        for namespace in ("ipc", "pid", "net", "uts", "cgroup-try"):
            command.append(f"--unshare-{namespace}")
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            command += ["--cap-add", capability]
    else:
        command.append("--unshare-all")
    command += _file_system(installation)
    return [*command, "--chdir", "/", "--", *plain_command(installation, control_fd)]


def _file_system(installation: Installation) -> list[str]:
    """Binds, in the order in which bubblewrap has to apply them."""
    arguments: list[str] = []
    for path in map(Path, (*_system_libraries(), *_LINKER_FILES)):
        if path.is_symlink():  # merged /usr
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            arguments += ["--ro-bind", str(path), str(path)]
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}  # not a virtual environment
    folders = [sysconfig.get_path(which, vars=base) for which in ("stdlib", "platstdlib")]
    standard = [Path(folder) for folder in dict.fromkeys(folders)]
    hidden = list(_package_folders(standard))
    for path in (*standard, installation.interpreter, *_interpreter_libraries(installation)):
        arguments += ["--ro-bind", str(path), str(path)]
    # Installed packages may carry recordings: hide them all, then show the few that are needed.
    for path in hidden:
        arguments += ["--tmpfs", str(path)]
    for path in installation.visible:
        if path.exists():
            arguments += ["--ro-bind", str(path), str(path)]
    for path in (*hidden, Path("/")):
        arguments += ["--remount-ro", str(path)]
    return arguments


def _system_libraries() -> Iterator[str]:
    """Folders of shared libraries: Debian's for this architecture, or the general ones."""
    yield from ("/lib", "/lib64", "/usr/lib64")
    own = f"/usr/lib/{_MULTIARCH}"
    yield own if Path(own).is_dir() else "/usr/lib"


def _interpreter_libraries(installation: Installation) -> Iterator[Path]:
    """Shared libraries beside the interpreter (libpython, all of conda's) or on the linker path."""
    folders = [installation.interpreter.parent.parent / "lib"]
    folders += map(Path, filter(None, os.environ.get(_LINKER_PATH, "").split(os.pathsep)))
    for folder in dict.fromkeys(folders):
        if folder.is_absolute() and os.access(folder, os.R_OK):
            yield from sorted(folder.glob("*.so*"))


def _package_folders(standard: Sequence[Path]) -> Iterator[Path]:
    """Folders of installed packages in what `_file_system` has bound by then."""
    usual = [p for root in ("/usr/lib", "/usr/lib64") for p in Path(root).glob("python3*")]
    places = [*standard, *usual]
    for place in dict.fromkeys(p.resolve() for p in places):
        for name in _INSTALLED:
            if (place / name).is_dir():
                yield place / name
