"""The same attacks with the host as an ordinary user, and as a root that may not change its uid.

Interpreter and libraries often lie where an ordinary user may not look (below /root, say), so they
are linked into a folder that everyone can read.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamea_gpu

NOBODY = 65534
_PACKAGES = ("numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "narwhals", "pyseccomp")
_UNUSED = shutil.ignore_patterns(
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip",
    "config-*", "turtledemo", "lib2to3", "datasets",
)  # fmt: skip

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the other tests are an ordinary user's")


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


def _link_tree(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, ignore=_UNUSED, dirs_exist_ok=True)
    else:
        _link(str(source.resolve()), str(target))


@pytest.fixture(scope="module")
def readable() -> Iterator[tuple[Path, list[str]]]:
    """An interpreter and import roots that every user can read."""
    with tempfile.TemporaryDirectory(prefix="llamea-gpu-") as name:
        root = Path(name)
        root.chmod(0o755)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        python = root / "python" / "bin" / version
        base = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
        _link_tree(base, python)
        _link_tree(Path(sysconfig.get_path("stdlib")), root / "python" / "lib" / version)
        for library in (base.parent.parent / "lib").glob("libpython*.so*"):
            _link_tree(library, root / "python" / "lib" / library.name)
        packages = root / "packages"
        for package in _PACKAGES:
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                continue
            origin = Path(spec.origin)
            found = origin.parent if spec.submodule_search_locations else origin
            for path in (found, *found.parent.glob("*.libs")):
                if not (packages / path.name).exists():
                    _link_tree(path, packages / path.name)
        _link_tree(Path(llamea_gpu.__file__).parent, packages / "llamea_gpu")
        _link_tree(Path(__file__).parent, root / "tests" / "sandbox")
        yield python, [str(packages), str(root / "tests")]


def _attack(python: Path, roots: list[str], *arguments: str, user: int) -> dict[str, Any]:
    program = Path(roots[1]) / "sandbox" / "as_user.py"
    done = subprocess.run(
        [str(python), "-sS", str(program), *arguments, *roots],
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(python.parent.parent / "lib"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("level", ["best", "2", "1"])
def test_an_ordinary_user_is_as_safe(readable: tuple[Path, list[str]], level: str) -> None:
    result = _attack(*readable, level, user=NOBODY)
    assert result.get("through") == [], result
    assert result["wrong_after"] == []
    assert result["uid"] == NOBODY
    assert result["attacks"] > 30
    assert result["level"] >= 2 if level == "best" else result["level"] == int(level)
    assert result["layers"]["unprivileged identity"] == "active"


def test_a_root_without_setuid_is_as_safe_and_says_what_it_lacks(
    readable: tuple[Path, list[str]],
) -> None:
    result = _attack(*readable, "2", "--without-setuid", user=0)
    assert result.get("through") == [], result
    assert result["wrong_after"] == []
    assert result["layers"]["unprivileged identity"] == "failed"
