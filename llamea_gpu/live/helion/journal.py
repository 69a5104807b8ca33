"""The journal of a live tuning on the engine: what was measured is not measured again.

JSON lines. The first says of what kernel, arguments, space and machine the journal is; each further
one is a configuration: ``c`` (value indices of the `HelionSpace`), ``how`` (what asked for it),
``status`` (of recordings), ``ms`` with its quartiles ``lo`` and ``hi``, ``compile_s``, ``bench_s``,
``source`` (hash of the generated code), ``at`` (seconds from the search's beginning until it was
known), ``message``, ``control``. With many searches it is the raw form of a cloud.

What it does not hold: readings that Helion's own way has made, and those of finalists.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from llamea_gpu.engine.journal import Journal, is_number, open_journal, unsound
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.frameworks.helion.static import facts_of_device
from llamea_gpu.live.helion.facts import kernel_info
from llamea_gpu.live.helion.runtime import HelionSearch
from llamea_gpu.spaces.recording import LEAST_TIME_MS, MOST_S, MOST_TIME_MS, STATUSES

Config = tuple[int, ...]
_MESSAGE = 300  # characters
_MAY_DIFFER = ("starts", "compilers")  # a time is the same whatever a search begins with


@dataclass(frozen=True, slots=True)
class Remembered:
    """One configuration of a journal: ``time_ms`` is inf where it failed."""

    status: str
    time_ms: float
    compile_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class JournalRequest:
    """A journal that a search is to keep.

    Attributes:
        path: of the file.
        how: what asks for configurations, the searcher's spec.
        shape: a kernel script's word for its arguments, if there is one.
    """

    path: Path
    how: str
    shape: str = ""

    def opened(self, search: HelionSearch, space: HelionSpace, compilers: int) -> TuningJournal:
        """Open or begin it.

        Raises:
            RecordingError: it is of something else, is damaged, in use, or cannot be written.
        """
        header = _header(search, space, compilers, self.shape)
        with ExitStack() as closing:
            journal = closing.enter_context(open_journal(self.path, header, _MAY_DIFFER))
            return TuningJournal(journal, space, self, closing)


class TuningJournal:
    """An open journal.

    Attributes:
        known: what earlier runs have measured, in their order.
        used_s: seconds that they had come to.
    """

    def __init__(
        self, journal: Journal, space: HelionSpace, request: JournalRequest, closing: ExitStack
    ) -> None:
        self._journal = journal
        self._how, self._starts = request.how, set(space.starts)
        self.known: dict[Config, Remembered] = {}
        self.used_s = 0.0
        for number, entry in enumerate(journal.entries, start=2):
            if "c" not in entry:
                continue
            parsed = _read(entry, space)
            if parsed is None:
                raise unsound(entry, request.path, number)
            config, remembered = parsed
            self.known[config] = remembered
            self.used_s = max(self.used_s, remembered.at_s)
        self._closing = closing.pop_all()

    def append(self, config: Config, at_s: float, measured: Mapping[str, Any]) -> None:
        """Write one configuration.

        Raises:
            OSError: there is no room, or the disk fails.
        """
        origin = "start" if config in self._starts else self._how
        entry = {"c": list(config), "how": origin, **measured, "at": round(at_s, 3)}
        if entry.get("message"):
            entry["message"] = str(entry["message"])[:_MESSAGE]
        self._journal.append(entry)

    def close(self) -> None:
        """Have it on disk, and let others open it."""
        self._closing.close()


def _header(search: HelionSearch, space: HelionSpace, compilers: int, shape: str) -> dict[str, Any]:
    bound = search.kernel
    info = kernel_info(search)
    gpu = facts_of_device(bound.env.device)
    header = {
        "kernel": info.kernel,
        "script": Path(bound.kernel.fn.__code__.co_filename).stem,
        "shape": shape,
        "arguments": info.arguments,
        "device": info.device,
        "framework": info.framework,
        "kernel_source": info.kernel_source,
        "compilers": compilers,
        "names": space.names,
        "values": space.values,
        "ordinal": space.ordinal,
        "default": dict(bound.config_spec.default_config().config),
        "starts": space.starts,
        "facts": {
            "device": info.device,
            "capability": f"{gpu.capability[0]}.{gpu.capability[1]}",
            "multiprocessors": gpu.multiprocessors,
            "cuda": torch.version.cuda or "",
            "torch": torch.__version__,
            "triton": triton.__version__,
            "helion": importlib.metadata.version("helion"),
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(header, default=str))
    return plain


def _read(entry: Mapping[str, Any], space: HelionSpace) -> tuple[Config, Remembered] | None:
    """One line, checked; None where it is none that :meth:`TuningJournal.append` would write."""
    raw_config, status = entry["c"], entry.get("status")
    config = space.canonical(raw_config) if isinstance(raw_config, Sequence) else None
    time_ms: Any = entry.get("ms") if status == "ok" else math.inf
    compile_s, at_s = entry.get("compile_s", 0.0), entry.get("at", 0.0)
    if (
        config is None
        or status not in STATUSES
        or not (time_ms == math.inf or is_number(time_ms, LEAST_TIME_MS, MOST_TIME_MS))
        or not is_number(compile_s, 0.0, MOST_S)
        or not is_number(at_s, 0.0, MOST_S)
    ):
        return None
    return config, Remembered(status, float(time_ms), float(compile_s), float(at_s))
