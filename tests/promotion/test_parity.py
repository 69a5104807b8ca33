"""Parity in the real frameworks, behind seccomp: what agrees, what differs, what is missing."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from support.programs import CLIMBER

from llamea_gpu.errors import SearcherError
from llamea_gpu.export.confinement import run_worker
from llamea_gpu.promotion import gate
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import SearcherSource
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task, build_tasks

# Behaves by where its class lives, which differs between simulator, registry and export.
FICKLE = (
    CLIMBER.format(start=6)
    .replace("Climber", "Fickle")
    .replace(
        "space.sample(self.start)", "space.sample(self.start + len(type(self).__module__) % 5)", 1
    )
)


def searcher(source: str) -> SearcherSource:
    class_name = source.split("class ")[1].split(":")[0]
    return SearcherSource("mine", source, class_name, {})


def test_visits_that_differ_are_seen_in_kernel_tuner(
    tasks: tuple[Task, ...], runner: Runner
) -> None:
    found = gate.parity_with_kernel_tuner(searcher(FICKLE), "mine", tasks[0], runner, False)
    assert found.measured == "other visits", found.sentence
    assert "the live strategy and the exported file visit others" in found.sentence


def test_a_recording_with_a_problem_size_is_no_obstacle(runner: Runner) -> None:
    (task,) = build_tasks([load_space("nbody-24576")])
    assert task.recording.info.provenance["problem_size"] == '[24576, "split"]'
    program = searcher(CLIMBER.format(start=6))
    found = gate.parity_with_kernel_tuner(program, "mine", task, runner, False)
    assert found.passed, found.sentence


def test_visits_that_differ_are_seen_in_helion() -> None:
    found = gate.parity_with_helion(searcher(FICKLE), "mine", False)
    assert (found.passed, found.measured) == (False, "other visits"), found.sentence


CONFINED = """
import os, socket, threading
from pathlib import Path
from llamea_gpu.export.confinement import confine, tell

def attempt(name, action):
    try:
        action()
        tried.append(f"{name} works")
    except (OSError, RuntimeError, ImportError) as error:
        tried.append(f"{name} refused")

tried = []
confine("import numpy as np")
attempt("read", lambda: open("/etc/hostname").read())
attempt("write", lambda: open("written", "w").write("x"))
attempt("import", lambda: __import__("telnetlib_or_other"))
attempt("socket", lambda: socket.socket())
attempt("fork", os.fork)
attempt("thread", lambda: threading.Thread(target=print).start())
attempt("kill", lambda: os.kill(os.getppid(), 0))
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
tell(tried)
"""


def test_a_confined_process_can_compute_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "attempts.py").write_text(CONFINED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.setenv("SECRET_TOKEN", "s3cret")
        (told,) = run_worker("attempts", {}, tmp_path)
    assert told == [
        f"{name} refused"
        for name in ("read", "write", "import", "socket", "fork", "thread", "kill", "exec")
    ]
    assert not (tmp_path / "written").exists()


TOLD_SECRET = """
import json, os
print("visits: " + json.dumps([os.environ.get("SECRET_TOKEN", "x")]))
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit('it broke')", "it broke"),
        ("print('nothing of use')", "told 0 times"),
        ("print('visits: []'); print('visits: []')", "told 2 times"),
        ("print('visits: {}')", "told something else"),
        ("print('visits: [1, 2]')", "told something else"),
        (TOLD_SECRET, ""),
    ],
)
def test_what_a_worker_tells_is_checked(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "worker_body.py").write_text(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.setenv("SECRET_TOKEN", "s3cret")
        if said:
            with pytest.raises(SearcherError, match=said):
                run_worker("worker_body", {}, tmp_path)
        else:
            assert run_worker("worker_body", {}, tmp_path) == [["x"]]


@pytest.mark.parametrize("name", ["KernelTunerSpace", "HelionSpace"])
def test_a_program_that_cannot_be_exported_fails(
    name: str, tasks: tuple[Task, ...], runner: Runner
) -> None:
    program = searcher(f"{name} = 1\n{CLIMBER.format(start=6)}")
    if name == "HelionSpace":
        check = gate.parity_with_helion(program, "mine", False)
    else:
        check = gate.parity_with_kernel_tuner(program, "mine", tasks[0], runner, False)
    assert (check.passed, check.measured) == (False, "not measured")
    assert name in check.sentence


def test_without_a_framework_the_check_fails_and_names_the_extra(
    tasks: tuple[Task, ...], runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = importlib.metadata.version

    def missing(package: str) -> str:
        if package in ("kernel_tuner", "helion"):
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    program = searcher(CLIMBER.format(start=6))
    for check, extra in (
        (gate.parity_with_kernel_tuner(program, "mine", tasks[0], runner, False), "kernel-tuner"),
        (gate.parity_with_helion(program, "mine", False), "helion"),
    ):
        assert not check.passed
        assert f"pip install 'llamea-gpu[{extra}]'" in check.sentence
