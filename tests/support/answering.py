"""Somebody with a model, at the other end of an exchange folder."""

from __future__ import annotations

import collections
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from llamea_gpu.llm import BatchExchange


class Answerer:
    """Answers requests of an exchange folder as they appear, as somebody with a model would."""

    def __init__(self, folder: Path, answers: Mapping[str, str]) -> None:
        self._folder = folder / "exchange"
        self._answers = answers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self) -> Answerer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _answer(self) -> None:
        while not self._stop.wait(0.05):
            if self._folder.is_dir():
                exchange = BatchExchange(self._folder)
                for request_id in exchange.pending():
                    exchange.submit_answer(request_id, self._answers[request_id], "canned")

    def requests(self) -> collections.Counter[str]:
        # A hidden file is one that a kill left between writing and renaming: nobody reads it.
        files = [f for f in (self._folder / "requests").iterdir() if not f.name.startswith(".")]
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return collections.Counter(line["custom_id"] for line in lines)
