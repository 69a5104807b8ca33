"""What must be equal between two archives of the same run: everything but times and the host."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from llamea_gpu.archive import FILE_NAME

TABLES = {
    "calls": "request_id, slot, attempt, operator, key, model, messages, temperature, max_tokens",
    "answers": "request_id, text, prompt_tokens, completion_tokens, finish_reason, problem",
    "evaluations": "slot, attempt, space, repeat, seed, outcome, asks, revisits, error, trace",
    "candidates": "slot, document",
    "rescores": "slot, generation, document",
}


def essence(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Rows by table, sorted, with host-dependent numbers masked."""
    with sqlite3.connect(folder / FILE_NAME) as db:
        present = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        found = {
            table: sorted(db.execute(f"SELECT {columns} FROM {table}")) if table in present else []
            for table, columns in TABLES.items()
        }
    db.close()
    for table in ("candidates", "rescores"):
        found[table] = [(*key, _without_cpu(text)) for *key, text in found[table]]
    found["calls"] = [
        tuple(re.sub(r"≈\s?[\d.]+", "≈#", json.dumps(v, ensure_ascii=False)) for v in row)
        for row in ((*row[:6], json.loads(row[6]), *row[7:]) for row in found["calls"])
    ]
    return found


def _without_cpu(text: str) -> object:
    document = json.loads(text)
    for space in (document["feedback"] or {}).get("spaces", ()):
        del space["cpu_s"]
    return json.dumps(document, sort_keys=True)
