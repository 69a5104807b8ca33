"""Neither a candidate nor who reads its errors learns this machine's name or paths."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sandbox.candidates import candidate

import llamea_gpu
from llamea_gpu.sandbox import concealment
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.tasks import Task

# Backwards, so that what the host cuts out of texts is not what hides it here.
_TELL = "\nraise ValueError(' '.join(map(str, told))[::-1])"
_LIBRARIES = Path(np.__file__).parents[1]
_OWN = Path(llamea_gpu.__file__).parents[1]

_ASKED = {
    "the platform": "import platform as p\ntold = [p.uname(), p.node(), p.version()]",
    "the system": "told = [os.uname(), os.environ]",
    "the interpreter": "told = [v for v in vars(sys).values() if isinstance(v, (str, list))]",
    "modules": """
told = []
for m in list(sys.modules.values()):
    spec = getattr(m, "__spec__", None)
    told += [getattr(m, "__file__", ""), getattr(m, "__path__", ""), getattr(m, "__cached__", "")]
    told += [spec, getattr(getattr(spec, "loader", None), "path", "")]
    told += [v for v in vars(m).values() if isinstance(v, (str, list)) and "/" in str(v)[:200]]
told = sorted({t for t in map(str, told) if "/" in t and ("site-pack" in t or len(t) < 300)})[:90]
""",
    "functions": """
told = set()
for m in list(sys.modules.values()):
    for v in list(vars(m).values()):
        for f in (v, *(vars(v).values() if isinstance(v, type) else ())):
            codes = [f.__code__] if isinstance(f, type(lambda: 0)) else []
            while codes:
                code = codes.pop()
                told.add(os.path.dirname(code.co_filename))
                codes += [c for c in code.co_consts if hasattr(c, "co_consts")]
""",
    "frames": """
frame, told = sys._getframe(), []
while frame:
    told.append(frame.f_code.co_filename)
    frame = frame.f_back
""",
}


@pytest.mark.parametrize("what", _ASKED)
def test_a_candidate_sees_neutral_names(best: Sandbox, task: Task, what: str) -> None:
    error = best.run(candidate(_ASKED[what] + _TELL, task)).error or ""
    _, raised, told = error.rpartition("ValueError: ")
    assert raised
    told = told[::-1]
    folders = {str(_LIBRARIES), str(_OWN), sys.prefix, sys.base_prefix, os.path.expanduser("~")}
    for secret in (socket.gethostname(), platform.version(), *folders):
        assert secret not in told


@pytest.mark.parametrize(
    ("what", "secret"),
    [
        ("the platform", socket.gethostname()),
        ("the system", socket.gethostname()),
        ("the interpreter", sys.prefix),
        ("modules", str(_LIBRARIES)),
        ("functions", str(_LIBRARIES)),
    ],
)
def test_without_concealment_the_same_is_told(what: str, secret: str) -> None:
    """The control: the same questions, asked of an ordinary process."""
    asked = _ASKED[what].removesuffix("[:90]\n")
    program = f"import os, sys, numpy\n{asked}\nprint(*told)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert secret in done.stdout, done.stderr


def test_time_is_not_local_to_the_machine(best: Sandbox, task: Task) -> None:
    trace = best.run(candidate("assert time.tzname[0] == 'UTC', time.tzname", task))
    assert trace.error is None


@pytest.mark.parametrize(
    "path",
    [
        str(_LIBRARIES / "numpy/__init__.py"),
        str(_OWN / "llamea_gpu/errors.py"),
        f"{os.path.expanduser('~')}/.ssh/id",
        "/opt/x/lib/python3.12/json/decoder.py",
    ],
)
def test_an_error_that_names_a_path_is_told_without_it(
    best: Sandbox, task: Task, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    folder = os.path.dirname(os.path.dirname(path))
    job = candidate(f"path = {path[::-1]!r}[::-1]\nraise OSError('no (' + path + ') here')", task)
    assert folder not in (best.run(job).error or "")
    monkeypatch.setattr("llamea_gpu.sandbox.serving.without_paths", lambda text: text)
    assert folder in (best.run(job).error or "")  # the control


def test_cutting_paths_takes_linear_time() -> None:
    for text in ("/" * 100_000, "/a" * 50_000, "(" * 100_000, "/site-packages" * 9_000):
        concealment.without_paths(text)


def test_other_text_stays() -> None:
    text = "ValueError: 3/4 of a/b, see https://example.org/python3.11/x or /tmp/x"
    assert concealment.without_paths(text) == text
