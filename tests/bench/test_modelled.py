"""A bench on modelled whole spaces calls nothing that it prints a P, or measured."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.whole import ToyTask, toy_task

from llamea_gpu.area import Yardstick
from llamea_gpu.bench import BenchResults, BenchSettings, make_plan
from llamea_gpu.bench.analysis import analyse
from llamea_gpu.cli.bench import _print
from llamea_gpu.programs import make
from llamea_gpu.report import write_report
from llamea_gpu.report.bench_page import bench_page
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve_program


def named_task(name: str) -> ToyTask:
    task = toy_task(
        yardstick=Yardstick("helion:X", "parallel(2)", 30.0, 12, 0.5, 1.2, np.full(1000, 0.4), 0.01)
    )
    return replace(task, cloud=replace(task.cloud, info=replace(task.cloud.info, name=name)))


@pytest.fixture(scope="module", params=[5, 2])
def results(request: pytest.FixtureRequest) -> BenchResults:
    searchers = [resolve_program(name) for name in ("random_search", "genetic_algorithm")]
    tasks = {name: named_task(name) for name in ("toy", "other")}
    plan = make_plan(searchers, list(tasks.values()), request.param, BenchSettings())
    programs = {searcher.name: searcher.program for searcher in searchers}
    runs = {
        key: run_optimizer(
            lambda name=key.searcher: make(programs[name]),
            tasks[key.space],
            plan.seed_of(key),
            cpu_s=None,
        )
        for key in plan.runs()
    }
    return BenchResults(plan, runs, analyse(plan, tasks, runs), ("llamea-gpu", "bench"))


def test_every_sentence_with_a_score_says_that_it_is_modelled(results: BenchResults) -> None:
    assert results.analysis is not None
    sentences = (*results.analysis.sentences, *(c.sentence for c in results.analysis.comparisons))
    assert len(sentences) >= 3
    assert all("modelled score" in sentence for sentence in sentences)
    assert not re.search(r"\bP\b", " ".join((*sentences, *results.analysis.cautions)))


def test_the_terminal_says_it_at_every_table(
    results: BenchResults, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _print(results)
    shown = " ".join(capsys.readouterr().out.split())  # a title is as wide as its table
    assert not re.search(r"\bP\b|optimum|0 is random search", shown)
    assert "0 is Helion's LFBOTreeSearch at full effort, 1 the best known at once" in shown
    assert "modelled score [95 %]" in shown
    assert "modelled speed-up over default" in shown
    assert "modelled score, and the kernel's modelled time at the end" in shown
    assert "Share of runs that came near the best known" in shown


def test_the_report_says_it_at_every_chart(results: BenchResults, tmp_path: Path) -> None:
    charts = str(bench_page(results, "whole"))  # figures are packed in the file
    write_report(results, tmp_path / "page.html", title="whole")
    page = (tmp_path / "page.html").read_text()
    footer = page[page.index("<footer>") : page.index("</footer>")]
    for text in (charts, footer):
        assert not re.search(r"\bP\b|the optimum|optimum, ms|0 is random search", text)
        assert "0 is Helion's LFBOTreeSearch at full effort" in html.unescape(text)
    assert "Modelled score along the time axis" in charts
    assert "has the highest modelled score" in charts
    assert "modelled final ms" in charts
    assert "'text': 'modelled score'" in charts  # of an axis
