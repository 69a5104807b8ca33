"""Starts a zygote of a level and believes in it only after the self-attacks.

It keeps no pool (`pool`) and compares no levels (`diagnosis`).
"""

from __future__ import annotations

from dataclasses import replace

from llamea_gpu.errors import SandboxError, SandboxUnavailableError
from llamea_gpu.sandbox.levels import (
    LEVELS,
    NAMESPACES,
    UNSAFE,
    Ingredients,
    Level,
    identity_layer,
    process_layers,
)
from llamea_gpu.sandbox.process import ZygoteDied, ZygoteProcess
from llamea_gpu.sandbox.report import AttackVerdict, Layer, LevelReport, SandboxReport
from llamea_gpu.sandbox.selftest import ATTACKS, run_self_test

FIRST_LIBRARY = "numpy"  # what a sandbox is verified with when it opens
_REFUSAL = (
    "an isolation level of at least {minimum} must be verified before generated code is run, but "
    "none was. {problems}. {remedies}Inside a machine that may be thrown away, "
    "--unsafe-no-sandbox runs without isolation"
)


def start_verified(
    ingredients: Ingredients, level: Level, library: str
) -> tuple[ZygoteProcess, tuple[AttackVerdict, ...]]:
    """A zygote that has held off every self-attack (level 0: that has run the control).

    Raises:
        SandboxError: it did not start, or an attack got through.
    """
    zygote = ingredients.start(level, library)
    try:
        verdicts = run_self_test(zygote, ATTACKS if level.number else ())
        failed = [verdict for verdict in verdicts if not verdict.held]
        if failed:
            problems = "; ".join(f"{verdict.name}: {verdict.detail}" for verdict in failed)
            raise SandboxError(f"a self-test failed: {problems}")
    except ZygoteDied as death:
        zygote.close()
        raise SandboxError(f"the zygote died in its self-test: {death}") from death
    except BaseException:
        zygote.close()
        raise
    return zygote, verdicts


def try_level(ingredients: Ingredients, level: Level) -> tuple[ZygoteProcess | None, LevelReport]:
    """A verified zygote with the first set of libraries and its report; None, and why not."""
    layers = ingredients.layers(level)
    try:
        zygote, verdicts = start_verified(ingredients, level, FIRST_LIBRARY)
    except SandboxError as error:
        blamed = _blame_namespaces(layers, level, str(error))
        return None, LevelReport(level.number, level.title, False, str(error), blamed, ())
    used = tuple(
        replace(layer, state="active") if layer.name in level.needs else layer for layer in layers
    )
    all_layers = (*process_layers(), identity_layer(zygote.identity), *used)
    return zygote, LevelReport(level.number, level.title, True, "", all_layers, verdicts)


def open_best(
    ingredients: Ingredients, minimum: int, exact: int | None, unsafe: bool
) -> tuple[Level, ZygoteProcess, SandboxReport]:
    """The best level that verifies.

    Raises:
        SandboxUnavailableError: none does; the message names every problem and remedy.
    """
    if unsafe:
        levels: tuple[Level, ...] = (UNSAFE,)
    elif exact is not None:
        levels = tuple(level for level in LEVELS if level.number == exact)
    else:
        levels = tuple(level for level in LEVELS if level.number >= minimum)
    tried = []
    for level in levels:
        zygote, level_report = try_level(ingredients, level)
        tried.append(level_report)
        if zygote is not None:
            return level, zygote, SandboxReport(level.number, tuple(tried))
    report = SandboxReport(None, tuple(tried))
    problems = "; ".join(f"level {entry.number}: {entry.problem}" for entry in tried)
    remedies = "".join(f"{remedy}. " for remedy in report.remedies)
    raise SandboxUnavailableError(
        _REFUSAL.format(
            minimum=minimum if exact is None else exact,
            problems=problems or "There is no such level",
            remedies=remedies,
        )
    )


def _blame_namespaces(layers: tuple[Layer, ...], level: Level, problem: str) -> tuple[Layer, ...]:
    """Mark bubblewrap as failed where it is present and the zygote around it did not start."""
    if NAMESPACES not in level.needs or "bwrap:" not in problem:
        return layers
    message = problem[problem.index("bwrap:") :]
    remedy = (
        "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0), or start the container with a seccomp "
        "profile that lets bubblewrap make namespaces"
    )
    return tuple(
        Layer(layer.name, "failed", message, remedy)
        if layer.name == NAMESPACES and layer.state == "off"
        else layer
        for layer in layers
    )
