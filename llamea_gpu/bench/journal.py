"""The journal of a bench that runs: a line of JSON a run, appended when it ends.

A process that is killed leaves at most one torn line, which is dropped. One process writes at a
time. What it does not do: keep finished benches (`llamea_gpu.bench.results` does).
"""

from __future__ import annotations

import fcntl
import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from llamea_gpu.bench.plan import Plan, RunKey
from llamea_gpu.bench.tables import checked_trace, kept_error
from llamea_gpu.errors import BenchError
from llamea_gpu.tasks import Trace

_MAX_BYTES = 1 << 30


class Journal:
    """A context manager; make one with `Journal.open`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file

    @classmethod
    def open(cls, path: Path) -> Journal:
        """The journal at ``path``, which is made if need be, for this process alone.

        Raises:
            BenchError: another process has it.
        """
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise BenchError(
                f"a bench's folder is for one process, but another one writes to {path.parent}: "
                f"wait for it, or use another folder"
            ) from None
        return cls(path, file)

    def append(self, key: RunKey, trace: Trace) -> None:
        """Write one run; it survives the death of this process."""
        document = {
            **key._asdict(),
            "seed": trace.seed,
            "outcome": trace.outcome,
            "error": kept_error(trace),
            "asks": trace.asks,
            "revisits": trace.revisits,
            "cpu_s": trace.cpu_s,
            "rows": trace.rows.tolist(),
            "elapsed_s": trace.elapsed_s.tolist(),
            "cost_ms": [cost if math.isfinite(cost) else None for cost in trace.cost_ms.tolist()],
        }
        self._file.write(json.dumps(document).encode() + b"\n")
        self._file.flush()

    def read_lines(self) -> list[bytes]:
        """The whole lines; the end of a torn one is cut off.

        Raises:
            BenchError: there is far too much.
        """
        self._file.seek(0)
        data = self._file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise BenchError(f"{self._path} must have at most {_MAX_BYTES} bytes, but has more")
        whole = data.rfind(b"\n") + 1
        self._file.truncate(whole)
        return data[:whole].splitlines()

    def read(self, plan: Plan) -> dict[RunKey, Trace]:
        """The runs, checked.

        Raises:
            BenchError: a line is no run of ``plan``.
        """
        wanted = set(plan.runs())
        spaces = {space.name: space for space in plan.spaces}
        runs: dict[RunKey, Trace] = {}
        for number, line in enumerate(self.read_lines(), start=1):
            try:
                document: dict[str, Any] = json.loads(line)
                document["cost_ms"] = [math.inf if c is None else c for c in document["cost_ms"]]
                key = RunKey(document["searcher"], document["space"], document["repeat"])
                if key not in wanted:
                    raise BenchError(f"a run must be of this bench, but {key!r:.200} is not")
                runs[key] = checked_trace(document, spaces[key.space], plan.seed_of(key))
            except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
                raise BenchError(
                    f"{self._path}: line {number}: a line must be a run, but: {error!s:.200}"
                ) from error
            except BenchError as error:
                raise BenchError(f"{self._path}: line {number}: {error}") from error
        return runs

    def clear(self) -> None:
        """Forget every run."""
        self._file.truncate(0)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
