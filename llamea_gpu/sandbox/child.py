"""The contract's runtime inside the hardened child: fetches the job, runs the candidate, reports.

Nothing here protects the measurements: they are not in this process. A candidate may take all of it
apart; what it sends is checked by the host (`serving`). It needs numpy and the standard library.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any

from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.evaluate import Evaluate, request, rest
from llamea_gpu.sandbox.hardening import CHANNEL_FD
from llamea_gpu.sandbox.remote_space import RemoteSpace, RemoteView, WholeEvaluate
from llamea_gpu.seeding import seed_process
from llamea_gpu.spaces.seeded import SeededSpace
from llamea_gpu.spaces.space import SearchSpace, SpaceView

CANDIDATE_FILE = "<candidate>"
_CANDIDATE_MODULE = "candidate"
_FRAMES_SHOWN = 6


def run(spaces: Mapping[str, SearchSpace]) -> None:
    """Fetch the job, run it, tell the host how it ended. ``spaces`` are by fingerprint."""
    reply = request(protocol.KIND.pack(protocol.READY))
    (size,) = protocol.JOB_SIZE.unpack_from(reply)
    job = json.loads(rest(reply[protocol.JOB_SIZE.size :], size))
    try:
        _run_candidate(job, spaces)
    except BudgetExhausted:
        pass
    except Stalled as stalled:
        _fail("stalled", f"{stalled}")
        return
    except MemoryError:
        _fail("memory", "MemoryError: the run's memory limit is reached")
        return
    except BaseException as error:
        _fail("error", _describe(error))
        return
    os.write(CHANNEL_FD, protocol.KIND.pack(protocol.DONE))


def _run_candidate(job: Mapping[str, Any], spaces: Mapping[str, SearchSpace]) -> None:
    """The candidate sees a fresh module, and global generators that depend on the seed alone."""
    source: str = job["source"]
    seed: int = job["seed"]
    rng = seed_process(seed)
    module = types.ModuleType(_CANDIDATE_MODULE)
    sys.modules[_CANDIDATE_MODULE] = module  # dataclasses look their module up
    lines = source.splitlines(keepends=True)
    linecache.cache[CANDIDATE_FILE] = (len(source), None, lines, CANDIDATE_FILE)
    exec(compile(source, CANDIDATE_FILE, "exec"), module.__dict__)  # noqa: S102 - what it is for
    optimizer = getattr(module, job["class_name"])(**job["hyperparameters"])
    evaluate_arguments = job["parallel"], job["max_pending"], job["spent"]
    evaluate: Evaluate
    view: Any
    if job["whole"] is not None:
        remote = RemoteSpace(**job["whole"])
        view, evaluate = RemoteView(remote), WholeEvaluate(remote, *evaluate_arguments)
        measured = list(map(tuple, job["measured"]))
    else:
        space = spaces[job["space"]]
        view, evaluate = SpaceView(space, rng), Evaluate(space, *evaluate_arguments)
        measured = [space.configuration(row) for row in job["measured"]]
    optimizer(evaluate, SeededSpace(view, measured) if measured else view, rng)


def _fail(reason: str, text: str) -> None:
    head = protocol.KIND_AND_WORD.pack(protocol.FAILED, protocol.REASONS.index(reason))
    raw = text.encode("utf-8", errors="replace")
    if len(raw) > protocol.MAX_TEXT_BYTES:
        half = protocol.MAX_TEXT_BYTES // 2 - 16
        raw = raw[:half] + b"\n[...]\n" + raw[-half:]
    os.write(CHANNEL_FD, head + raw)


def _describe(error: BaseException) -> str:
    """A traceback of the candidate's lines, and of library frames without this machine's paths."""
    shown = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == CANDIDATE_FILE:
            shown.append(f"  line {frame.lineno}, in {frame.name}\n    {frame.line}")
        elif shown and not frame.filename.startswith(_OWN_FOLDER):
            shown.append(f"  {_library_name(frame.filename)}, in {frame.name}")
    if len(shown) > 2 * _FRAMES_SHOWN:
        left_out = len(shown) - 2 * _FRAMES_SHOWN
        shown[_FRAMES_SHOWN:-_FRAMES_SHOWN] = [f"  [{left_out} more calls]"]
    last = "".join(traceback.format_exception_only(type(error), error)).rstrip()
    return "\n".join(["Traceback of <candidate> (most recent call last):", *shown, last])


def _library_name(path: str) -> str:
    """``numpy/linalg/_linalg.py`` of a path below any site-packages or standard library."""
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            return path.rpartition(marker)[2]
    return path.rpartition("/")[2]


_OWN_FOLDER = os.path.dirname(__file__)
