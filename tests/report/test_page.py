"""The file itself: complete, closed, small, the same each time, and safe to open."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from support.report_material import (
    candidate,
    program,
    small_family,
    write_archive,
    write_bench,
    written,
)

from llamea_gpu.errors import BenchError
from llamea_gpu.report import read_source, write_report
from llamea_gpu.report.page import ASSETS

LIMIT_BYTES = 5_000_000


def element(text: str, name: str) -> str:
    found = re.search(
        rf'<script type="application/octet-stream" id="{name}">([^<]*)</script>', text
    )
    assert found
    return gzip.decompress(base64.b64decode(found[1])).decode()


def payload(page: Path) -> dict:
    return json.loads(element(page.read_text(), "payload"))


@pytest.fixture(params=["run", "bench"])
def page(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(f"{request.param}_page")


def test_plotly_accepts_every_figure(page: Path) -> None:
    figures = payload(page)["figures"]
    assert figures
    for found in figures.values():
        go.Figure(
            json.loads(
                re.sub(r'"@[a-z0-9/]+"', '"red"', json.dumps(found)).replace(
                    '"colorscale": "red"', '"colorscale": "Viridis"'
                )
            )
        )


def test_nothing_is_loaded_from_anywhere(page: Path) -> None:
    own = re.sub(r"<script[^>]*>.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']?(?!#)[^"'>\s]+""", own)
    assert not re.findall(r"url\(|@import", own)


def test_the_policy_allows_the_two_scripts_and_no_other(page: Path) -> None:
    text = page.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script
    digests = [
        base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        for source in (script[1], element(text, "plotly"))
    ]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert rules["default-src"] == "'none'"


def test_the_same_folder_gives_the_same_file(run_folder: Path, run_page: Path, tmp_path) -> None:
    assert written(run_folder, tmp_path / "again.html").read_bytes() == run_page.read_bytes()


def test_a_run_of_200_candidates_stays_small(tmp_path: Path) -> None:
    family = []
    for slot in range(200):
        own = "".join(f"# note {slot}-{i} {hash((slot, i)):x}\n" for i in range(80))
        shared = "".join(f"        step_{i} = rng.normal() * {i}\n" for i in range(220))
        parents = (slot - 1, max(0, slot - 7)) if slot else ()
        family.append(
            candidate(slot, 0.3 + slot / 400, parents=parents, program=program(slot, shared + own))
        )
    prompt = "".join(f"A line {i} of a prompt that describes the task.\n" for i in range(400))
    folder = write_archive(tmp_path / "run", family, prompt=prompt, evaluations=100)
    size = written(folder, tmp_path / "run.html").stat().st_size
    assert size < LIMIT_BYTES


def test_a_run_without_anything_has_a_report(tmp_path: Path) -> None:
    text = written(write_archive(tmp_path / "run", []), tmp_path / "run.html").read_text()
    assert "none scored yet" in text


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    one = candidate(0, 0.5)
    spaces = tuple(replace(s, regret=float("inf")) for s in one.feedback.spaces)
    one = replace(one, feedback=replace(one.feedback, spaces=spaces))
    page = written(write_archive(tmp_path / "run", [one]), tmp_path / "run.html")
    assert payload(page)["details"]["candidates"][0]["spaces"][0]["regret"] is None


def test_a_failed_writing_leaves_the_old_file(run_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text("old")
    with pytest.raises(BenchError):
        write_report(replace_analysis(tmp_path), file, title="x")
    assert file.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench", "run.html"]


def replace_analysis(tmp_path: Path):
    """A bench without findings."""
    folder = write_bench(tmp_path / "bench", repeats=2, names=("one",))
    return replace(read_source(folder), analysis=None)


def test_names_are_shown_and_escaped(tmp_path: Path) -> None:
    family = [candidate(0, 0.5, operator="<b>x</b>"), *small_family()[3:5]]
    text = written(write_archive(tmp_path / "a<i>b", family), tmp_path / "run.html").read_text()
    assert "<b>x</b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<h1>a&lt;i&gt;b</h1>" in text


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(theme: int) -> None:
    style = (ASSETS / "style.css").read_text()
    blocks = re.findall(r"^:root[^{]*\{(.*?)^\}", style, re.DOTALL | re.MULTILINE)
    colours = dict(re.findall(r"--([a-z0-9-]+):\s*(#[0-9a-f]{6})", blocks[theme]))
    text = ("ink", "muted", "link", "keyword", "string", "comment", "numeral")
    for name in text:
        for ground in ("paper", "panel"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for ink, ground in (("added-ink", "added"), ("removed-ink", "removed")):
        assert contrast(colours[ink], colours[ground]) >= 4.5, ink
    for name in ("accent", "focus", *(f"s{i}" for i in range(1, 9))):
        assert contrast(colours[name], colours["paper"]) >= 3, name
