"""Which level opens, what must be there for it, and that a broken layer is found out."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import pytest
from sandbox.candidates import honest_job

from llamea_gpu.errors import SandboxError, SandboxUnavailableError
from llamea_gpu.sandbox import hardening, levels, opening, seccomp
from llamea_gpu.sandbox.diagnosis import diagnose, layers_alone
from llamea_gpu.sandbox.launch import find_installation
from llamea_gpu.sandbox.levels import LEVELS, UNSAFE, Ingredients
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.selftest import ATTACKS, CODE_ATTACK, CONTROL, TALK_ATTACK
from llamea_gpu.tasks import Task


def _without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels.shutil, "which", lambda name: None)


def _without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardening, "landlock_version", lambda: 0)


def _without_pyseccomp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)


def _without_libseccomp(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bytes:
        raise RuntimeError("Unable to find libseccomp")

    monkeypatch.setattr(seccomp, "compile_filter", fail)


# -- which level ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [3, 2, 1])
def test_a_level_can_be_asked_for(level: int, sandbox_of: Callable[[int], Sandbox]) -> None:
    sandbox = sandbox_of(level)
    assert sandbox.level == level
    current = sandbox.report.current
    assert current is not None
    assert [verdict.name for verdict in current.verdicts] == [
        CONTROL,
        *(attack.name for attack in ATTACKS),
    ]
    assert all(verdict.held for verdict in current.verdicts)


def test_the_best_level_opens_by_itself(sandbox_of: Callable[[int], Sandbox]) -> None:
    sandbox_of(3)  # or skip
    with Sandbox.open(1) as sandbox:
        assert sandbox.level == 3


@pytest.mark.parametrize(
    ("lose", "level"), [((_without_bubblewrap,), 2), ((_without_bubblewrap, _without_landlock), 1)]
)
def test_what_is_missing_lowers_the_level(
    lose: tuple[Callable[[pytest.MonkeyPatch], None], ...],
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    task: Task,
) -> None:
    for lacking in lose:
        lacking(monkeypatch)
    with Sandbox.open(1) as sandbox:
        assert sandbox.level == level
        assert sandbox.run(honest_job(task)).outcome == "budget"
        states = {layer.name: layer.state for layer in sandbox.report.tried[0].layers}
        assert states[levels.NAMESPACES] == "missing"
        assert any("apt install bubblewrap" in text for text in sandbox.report.remedies)


@pytest.mark.parametrize("lose", [_without_pyseccomp, _without_libseccomp])
def test_without_seccomp_nothing_runs(
    lose: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch)
    with pytest.raises(SandboxUnavailableError, match="libseccomp2") as caught:
        Sandbox.open(1)
    assert "--unsafe-no-sandbox" in str(caught.value)


def test_a_level_below_the_minimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_bubblewrap(monkeypatch)
    with pytest.raises(SandboxUnavailableError, match="at least 3") as caught:
        Sandbox.open(1, min_level=3)
    assert "level 2:" not in str(caught.value)


@pytest.mark.parametrize("level", [0, 4, -1])
def test_a_level_that_does_not_exist_is_refused(level: int) -> None:
    with pytest.raises(SandboxUnavailableError, match="no such level"):
        Sandbox.open(1, level=level)


def test_unsafe_is_level_0_with_limits_and_no_claims(task: Task) -> None:
    with Sandbox.open(1, unsafe=True) as sandbox:
        assert sandbox.level == 0
        current = sandbox.report.current
        assert current is not None
        assert "no isolation" in current.title
        assert [verdict.name for verdict in current.verdicts] == [CONTROL]
        assert levels.SECCOMP not in {layer.name for layer in current.layers}
        assert sandbox.run(honest_job(task)).outcome == "budget"


# -- a layer that does not hold is found out --------------------------------------------------


def test_each_layer_holds_alone_and_without_any_the_attacks_succeed(
    sandbox_of: Callable[[int], Sandbox],
) -> None:
    sandbox_of(3)  # or skip
    verdicts = layers_alone(Ingredients.find(find_installation()))
    assert [verdict.name for verdict in verdicts] == [
        "no layer",
        f"{levels.NAMESPACES} alone",
        f"{levels.LANDLOCK} alone",
        f"{levels.SECCOMP} alone",
        f"{levels.SECCOMP} alone",
    ]
    assert all(verdict.held for verdict in verdicts), verdicts
    assert all(name in verdicts[0].detail for name in (TALK_ATTACK.name, CODE_ATTACK.name))


def test_a_filter_that_allows_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_bubblewrap(monkeypatch)
    allow = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
    monkeypatch.setattr(seccomp, "compile_filter", lambda: allow)
    with pytest.raises(SandboxUnavailableError, match="self-test failed") as caught:
        Sandbox.open(1)
    assert "make a memory file" in str(caught.value)


def test_a_filter_that_forbids_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: nothing gets through, but nothing runs either."""
    refuse = (0x06).to_bytes(2, "little") + bytes(2) + (0x00050001).to_bytes(4, "little")
    monkeypatch.setattr(seccomp, "compile_filter", lambda: refuse)
    with pytest.raises(SandboxUnavailableError):
        Sandbox.open(1, level=2)


def test_a_filter_that_the_kernel_refuses_stops_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "compile_filter", lambda: b"\xff" * 16)
    with pytest.raises(SandboxUnavailableError, match="could not harden itself"):
        Sandbox.open(1, level=2)


def test_bubblewrap_that_fails_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        levels,
        "bubblewrap_command",
        lambda *_: ["sh", "-c", "echo bwrap: No permissions to create new namespace >&2; exit 1"],
    )
    with Sandbox.open(1) as sandbox:
        assert sandbox.level == 2
        first = sandbox.report.tried[0]
    assert "No permissions" in first.problem
    namespaces = next(layer for layer in first.layers if layer.name == levels.NAMESPACES)
    assert namespaces.state == "failed"
    assert "user namespaces" in namespaces.remedy


def test_a_zygote_that_prints_and_dies_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        levels, "plain_command", lambda *_: ["sh", "-c", "echo no libfoo.so here >&2; exit 3"]
    )
    with pytest.raises(SandboxUnavailableError, match=r"no libfoo\.so here"):
        Sandbox.open(1, level=1)


def test_a_replacement_zygote_is_verified_too(monkeypatch: pytest.MonkeyPatch, task: Task) -> None:
    with Sandbox.open(1, level=2) as sandbox:
        monkeypatch.setattr(opening, "run_self_test", _one_attack_through)
        sandbox._zygotes.pop("numpy").close()
        with pytest.raises(SandboxError, match="self-test failed"):
            sandbox.run(honest_job(task))


def _one_attack_through(*_: object) -> tuple[opening.AttackVerdict, ...]:
    return (opening.AttackVerdict("anything", False, "LEAKED"),)


# -- the report -------------------------------------------------------------------------------


def test_a_diagnosis_has_levels_layers_attacks_and_costs() -> None:
    report = diagnose(first_only=True)
    current = report.current
    assert current is not None
    assert current.verified
    assert current.costs is not None
    assert all(value > 0 for value in dataclasses.astuple(current.costs))
    assert report.alone == ()


def test_a_diagnosis_of_a_machine_without_anything_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lose in (_without_bubblewrap, _without_landlock, _without_pyseccomp):
        lose(monkeypatch)
    report = diagnose()
    assert (report.level, report.current) == (None, None)
    assert [tried.number for tried in report.tried] == [3, 2, 1]
    assert all(tried.problem for tried in report.tried)
    assert len(report.remedies) == 3


def test_the_levels_are_3_2_1_and_0_claims_nothing() -> None:
    assert [level.number for level in LEVELS] == [3, 2, 1]
    assert [len(level.needs) for level in (*LEVELS, UNSAFE)] == [3, 2, 1, 0]
