"""What `llamea-gpu doctor` says of the sandbox: all levels tried, each layer alone, costs.

Slower than opening a sandbox (a few seconds). It prints nothing.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from llamea_gpu.errors import SandboxError
from llamea_gpu.programs import Program
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.sandbox.launch import find_installation
from llamea_gpu.sandbox.levels import LANDLOCK, LEVELS, NAMESPACES, SECCOMP, Ingredients, Level
from llamea_gpu.sandbox.opening import try_level
from llamea_gpu.sandbox.process import ZygoteDied, ZygoteProcess
from llamea_gpu.sandbox.report import AttackVerdict, Costs, LevelReport, SandboxReport
from llamea_gpu.sandbox.selftest import (
    CALL_ATTACK,
    CODE_ATTACK,
    FILE_ATTACK,
    PROCESS_ATTACK,
    TALK_ATTACK,
    SelfAttack,
    run_self_test,
    self_test_task,
)
from llamea_gpu.sandbox.serving import run_job

_REPEATS = 15
_ASKS = 2000
_BATCH = 100

# What each layer must hold off with no other layer's help.
_ALONE: dict[str, tuple[SelfAttack, ...]] = {
    NAMESPACES: (PROCESS_ATTACK,),
    LANDLOCK: (FILE_ATTACK,),
    SECCOMP: (CALL_ATTACK, TALK_ATTACK),
}
_THROUGH_WITHOUT_ANY = (*(attack for alone in _ALONE.values() for attack in alone), CODE_ATTACK)

_ASKING = """
class Asking:
    def __init__(self, calls, size):
        self.calls, self.size = calls, size
    def __call__(self, evaluate, space, rng):
        seen = space.sample(1) * self.size
        for _ in range(self.calls):
            evaluate(seen)
"""


def diagnose(first_only: bool = False) -> SandboxReport:
    """Try every level, measure those that verify, and try each layer alone.

    ``first_only`` stops at the best level that verifies and leaves out the layers alone. What a
    machine lacks is never an exception.
    """
    ingredients = Ingredients.find(find_installation())
    tried: list[LevelReport] = []
    for level in LEVELS:
        zygote, report = try_level(ingredients, level)
        if zygote is not None:
            try:
                report = replace(report, costs=measure(zygote))
            finally:
                zygote.close()
        tried.append(report)
        if first_only and report.verified:
            break
    best = next((report.number for report in tried if report.verified), None)
    return SandboxReport(best, tuple(tried), () if first_only else layers_alone(ingredients))


def layers_alone(ingredients: Ingredients) -> tuple[AttackVerdict, ...]:
    """Whether each layer by itself holds off what it is there for, and nothing else does.

    The first verdict is the other control: without any layer, the same attacks must get through.
    """
    bare = _attempt(ingredients, (), _THROUGH_WITHOUT_ANY)
    through = [verdict.name for verdict in bare if not verdict.held]
    verdicts = [
        AttackVerdict(
            "no layer",
            len(through) == len(_THROUGH_WITHOUT_ANY),
            f"succeed: {', '.join(through)}",
        )
    ]
    for name, attacks in _ALONE.items():
        verdicts += [
            AttackVerdict(f"{name} alone", verdict.held, f"{verdict.name}: {verdict.detail}")
            for verdict in _attempt(ingredients, (name,), attacks)
        ]
    return tuple(verdicts)


def _attempt(
    ingredients: Ingredients, needs: tuple[str, ...], attacks: tuple[SelfAttack, ...]
) -> tuple[AttackVerdict, ...]:
    """Verdicts of ``attacks`` on a zygote with just these layers, or why there is none."""
    try:
        zygote = ingredients.start(Level(0, "", needs), "numpy")
    except SandboxError as error:
        return (AttackVerdict("start", False, str(error)),)
    try:
        return run_self_test(zygote, attacks)[1:]
    except (SandboxError, ZygoteDied) as error:
        return (AttackVerdict("start", False, str(error)),)
    finally:
        zygote.close()


def measure(zygote: ZygoteProcess) -> Costs:
    """Costs of a run, an ask and a batched configuration on this machine, as it is loaded now."""
    run_s, cpu_s = _time_run(zygote, 0, 1)
    ask_s, _ = _time_run(zygote, _ASKS, 1)
    batch_s, _ = _time_run(zygote, _ASKS, _BATCH)
    return Costs(
        start_s=zygote.start_s,
        run_ms=1e3 * run_s,
        run_cpu_ms=1e3 * cpu_s,
        ask_us=1e6 * max(ask_s - run_s, 0.0) / _ASKS,
        batched_us=1e6 * max(batch_s - run_s, 0.0) / (_ASKS * _BATCH),
    )


def _time_run(zygote: ZygoteProcess, calls: int, size: int) -> tuple[float, float]:
    """Median real and CPU seconds of a run that makes ``calls`` asks of ``size`` configurations."""
    job = Job(
        program=Program.unread(_ASKING, "Asking", calls=calls, size=size),
        task=self_test_task(),
        seed=0,
        max_idle_asks=10**9,
    )
    real, cpu = [], []
    for _ in range(_REPEATS if calls == 0 else 3):
        started = time.perf_counter()
        trace = run_job(zygote, job)
        real.append(time.perf_counter() - started)
        cpu.append(trace.cpu_s or 0.0)
    return statistics.median(real), statistics.median(cpu)
