"""A program, not a test: attacks the sandbox as whoever runs it and prints what came of it as JSON.

    python -sS as_user.py LEVEL [--without-setuid] IMPORT_ROOT...

LEVEL is a number, or ``best``. ``--without-setuid`` takes CAP_SETUID and CAP_SETGID from root
first, as some containers do.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

if "--without-setuid" in sys.argv:
    sys.argv.remove("--without-setuid")
    for capability in (6, 7):
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0
    os.execv(sys.executable, [sys.executable, "-sS", *sys.argv])

sys.path += sys.argv[2:]

from sandbox.attacks import ALL, FIRST
from sandbox.candidates import honest_job, same

from llamea_gpu.errors import SandboxUnavailableError
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.selftest import host_secret, judge, self_test_task


def main(level: str) -> dict[str, object]:
    """Every attack (the first group at a given level), each with an honest run after it."""
    task = self_test_task()
    exact = None if level == "best" else int(level)
    attacks = ALL if level == "best" else FIRST
    with Sandbox.open(2, level=exact) as sandbox, host_secret() as (path, token):
        expected = sandbox.run(honest_job(task))
        through, wrong = [], []
        for attack in attacks:
            verdict = judge(attack, sandbox.run(attack.job(task, path)), token)
            if not verdict.held:
                through.append(f"{verdict.name}: {verdict.detail}")
            if not same(sandbox.run(honest_job(task)), expected):
                wrong.append(attack.name)
        current = sandbox.report.current
        return {
            "uid": os.getuid(),
            "level": sandbox.level,
            "layers": {layer.name: layer.state for layer in current.layers if current},
            "attacks": len(attacks),
            "through": through,
            "wrong_after": wrong,
        }


try:
    print(json.dumps(main(sys.argv[1])))
except SandboxUnavailableError as error:
    print(json.dumps({"unavailable": str(error)}))
