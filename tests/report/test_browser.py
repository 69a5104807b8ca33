"""The report in a real browser: what a reader can do, and what a hostile run cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.report_material import (
    PROGRAM,
    candidate,
    feedback,
    program,
    write_archive,
    write_bench,
    written,
)

from llamea_gpu.bench.findings import Analysis
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.report import write_report

HOSTILE = (
    '</script></pre><img src=x onerror="window.pwned=1"><svg onload=window.pwned=1>'
    "<script>window.pwned=1</script><a href='javascript:window.pwned=1'>x</a>"
    '<a href="https://example.invalid/">y</a> \'"&amp;{{ 7*7 }}'
)
PHONE = {"viewport": {"width": 360, "height": 700}, "is_mobile": True, "has_touch": True}


@contextmanager
def opened(chromium: Any, page: Path, address: str = "", **options: Any) -> Iterator[Any]:
    """A tab with the report; anything on the console and any request fails the test."""
    desk = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
    context = chromium.new_context(**{**desk, **options})
    tab = context.new_page()
    heard: list[str] = []
    tab.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: heard.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
    tab.on("request", lambda request: heard.append(f"request: {request.url[:200]}"))
    tab.goto(page.as_uri() + address)
    if options.get("java_script_enabled", True):
        tab.wait_for_selector("html[data-ready]", state="attached")
    yield tab
    context.close()
    own = f"request: {page.as_uri()}"
    local = ("request: blob:", "request: data:")
    assert [line for line in heard if not line.startswith((own, *local))] == []


@pytest.fixture(scope="module")
def shared(chromium: Any, run_page: Path) -> Iterator[Any]:
    """One tab for the tests that leave the page as they found it: loading takes its time."""
    with opened(chromium, run_page, color_scheme="light") as tab:
        yield tab


@pytest.fixture
def reader(shared: Any) -> Any:
    """The run's report, no candidate open."""
    if shared.locator("#details").is_visible():
        shared.get_by_role("button", name="Close").click()
    open_tab(shared, "Overview")
    shared.mouse.move(0, 0)
    return shared


def tabs(tab: Any) -> list[str]:
    return tab.locator("main > [data-outer] > [role=tablist] > [role=tab]").all_inner_texts()


def open_tab(tab: Any, title: str) -> None:
    tab.locator("main > [data-outer] > [role=tablist] >> text=" + f'"{title}"').click()


def drawn_charts(tab: Any) -> int:
    return tab.locator(".plot.js-plotly-plot:visible").count()


def assert_every_tab_opens_and_draws(tab: Any) -> None:
    for title in tabs(tab):
        open_tab(tab, title)
        visible = tab.locator(".plot:visible").count()
        assert drawn_charts(tab) == visible
        assert tab.locator("[role=tabpanel]:visible").count() >= 1
    assert len(tabs(tab)) >= 6


def test_every_tab_of_a_run_opens_and_draws(reader) -> None:
    assert_every_tab_opens_and_draws(reader)


def test_every_tab_of_a_bench_opens_and_draws_and_fits_a_phone(chromium, bench_page) -> None:
    with opened(chromium, bench_page, **PHONE) as tab:
        assert_every_tab_opens_and_draws(tab)
        assert_no_tab_scrolls_sideways(tab)


def test_tabs_work_by_arrow_keys(reader) -> None:
    tab = reader
    tab.locator("[role=tab]").first.focus()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.textContent") == "Family tree"
    assert tab.locator("#tree").is_visible()
    tab.keyboard.press("End")
    assert tab.evaluate("document.activeElement.textContent") == "Settings"
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.textContent") == "Overview"
    assert tab.locator("[role=tab][tabindex='0']").count() == 1
    assert tab.url.endswith("#overview")


def node(tab: Any, slot: int) -> tuple[float, float]:
    """Where the mark of a candidate is on the screen."""
    at = tab.evaluate(
        """slot => {
            const plot = document.getElementById("tree");
            const layout = plot._fullLayout;
            for (const trace of plot._fullData) {
                const place = [...(trace.customdata || [])].indexOf(slot);
                if (place < 0) continue;
                const box = plot.getBoundingClientRect();
                return [
                    box.left + layout.xaxis._offset + layout.xaxis.d2p(trace.x[place]),
                    box.top + layout.yaxis._offset + layout.yaxis.d2p(trace.y[place]),
                ];
            }
        }""",
        slot,
    )
    return at[0], at[1]


def click_node(tab: Any, slot: int) -> None:
    tab.evaluate("document.getElementById('tree').scrollIntoView({block: 'center'})")
    tab.mouse.move(*node(tab, slot))
    tab.wait_for_selector("#tree .hoverlayer .hovertext", state="attached")
    tab.mouse.click(*node(tab, slot))
    tab.wait_for_selector(f"#details-title:has-text('#{slot} ')")


def test_a_mark_of_the_tree_opens_program_diff_and_prompts(reader) -> None:
    tab = reader
    open_tab(tab, "Family tree")
    click_node(tab, 2)
    details = tab.locator("#details")
    assert "P 0.550 ± 0.020" in details.inner_text()
    assert details.locator("tbody tr").count() == 2
    details.get_by_role("tab", name="Program").click()
    assert details.locator("pre.code:visible").inner_text() == PROGRAM.format(slot=12)
    details.get_by_role("tab", name="Diff").click()
    lines = details.locator("pre.diff:visible .line").all_inner_texts()
    assert "-class Walker10:" in lines
    assert "+class Walker12:" in lines
    details.get_by_role("tab", name="Prompts and answers").click()
    details.locator("summary:visible", has_text="Prompt").click()
    assert "Write a class. #2" in details.inner_text()
    details.get_by_role("tab", name="Convergence").click()
    assert details.locator(".js-plotly-plot:visible").count() == 2
    charts = [
        chart.bounding_box() for chart in details.locator(".js-plotly-plot .svg-container").all()
    ]
    assert charts[0]["x"] + charts[0]["width"] <= charts[1]["x"]
    details.get_by_role("link", name="#0", exact=True).click()
    tab.wait_for_selector("#details-title:has-text('#0 ')")
    assert tab.url.endswith("#candidate=0")
    # The same part stays open from candidate to candidate.
    assert details.locator("[role=tab][aria-selected=true]").inner_text() == "Convergence"


def test_the_tree_works_by_keyboard_and_speaks(reader) -> None:
    tab = reader
    open_tab(tab, "Family tree")
    tab.locator("#tree-keys").focus()
    tab.keyboard.press("Home")
    for _ in range(4):
        tab.keyboard.press("ArrowRight")
    status = tab.locator("#tree-status")
    assert status.inner_text() == "#2, refine, P 0.550 ± 0.020, from #0"
    tab.keyboard.press("ArrowUp")
    assert status.inner_text().startswith("#0, new")
    tab.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("#2, refine")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "details-title"
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.id") == "tree-keys"
    assert not tab.locator("#details").is_visible()


def test_the_tree_zooms_and_can_be_arranged_by_generation(reader) -> None:
    width = "(() => { const r = document.getElementById('tree')._fullLayout.xaxis.range; "
    width += "return r[1] - r[0]; })()"
    tab = reader
    open_tab(tab, "Family tree")
    before = tab.evaluate(width)
    tab.get_by_role("button", name="Zoom in").click()
    assert tab.evaluate(width) == pytest.approx(0.7 * before)
    tab.get_by_role("button", name="Whole tree").click()
    assert tab.evaluate(width) == pytest.approx(before)
    tab.mouse.move(*node(tab, 2))
    # Plotly takes a turn of the wheel over with some delay.
    tab.evaluate(
        "document.getElementById('tree').once('plotly_relayout', () => { window.zoomed = 1; })"
    )
    tab.mouse.wheel(0, -200)
    tab.wait_for_function("() => window.zoomed")
    assert tab.evaluate(width) < 0.99 * before
    tab.select_option("#tree-arrangement", "tree-by-generation")
    assert tab.evaluate("document.getElementById('tree')._fullLayout.yaxis.title.text") == (
        "generation"
    )
    click_node(tab, 7)


def test_the_table_of_candidates_opens_them_and_takes_the_focus_back(reader) -> None:
    tab = reader
    open_tab(tab, "Candidates")
    table = tab.locator("#candidates-section table")
    link = table.get_by_role("link", name="#5", exact=True)
    link.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#details-title:has-text('#5 ')")
    assert "ZeroDivisionError" in tab.locator("#details").inner_text()
    tab.get_by_role("button", name="Close").click()
    assert tab.evaluate("document.activeElement.textContent") == "#5"
    assert table.is_visible()


def test_tables_sort_numbers_as_numbers(reader) -> None:
    tab = reader
    open_tab(tab, "Candidates")
    table = tab.locator("#candidates-section table")
    heading = table.locator("th", has_text="P ± s.e.")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody th").all_inner_texts()[:3] == ["#7", "#2", "#3"]
    heading.locator("button").click()
    assert table.locator("tbody th").first.inner_text() == "random_search"


def background(tab: Any) -> str:
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_mode_follows_the_system_and_the_button(chromium, run_page) -> None:
    axis = "document.querySelector('#progress .xtick text').style.fill"
    with opened(chromium, run_page, color_scheme="dark") as tab:
        assert background(tab) == "rgb(20, 23, 27)"
        dark = tab.evaluate(axis)
        tab.get_by_role("button", name="Light colours").click()
        assert background(tab) == "rgb(255, 255, 255)"
        assert tab.evaluate(axis) != dark
        tab.reload()
        tab.wait_for_selector("html[data-ready]", state="attached")
        assert background(tab) == "rgb(255, 255, 255)"


def test_a_light_system_gets_light_colours(reader) -> None:
    assert background(reader) == "rgb(255, 255, 255)"


def assert_no_tab_scrolls_sideways(tab: Any) -> None:
    for title in tabs(tab):
        open_tab(tab, title)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, title


def test_a_phone_shows_all_of_a_run_without_scrolling_sideways(chromium, run_page) -> None:
    with opened(chromium, run_page, **PHONE) as tab:
        assert_no_tab_scrolls_sideways(tab)
        open_tab(tab, "Candidates")
        tab.get_by_role("link", name="#2", exact=True).first.tap()
        tab.wait_for_selector("#details-title:has-text('#2 ')")
        for part in tab.locator("#details [role=tab]").all():
            part.tap()
            assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_everything_has_a_name_for_those_who_do_not_see_it(reader) -> None:
    nameless = """() => [...document.querySelectorAll("button, select, input, a, [tabindex='0']")]
    .filter((item) => item.closest(".js-plotly-plot") === null)
    .filter((item) => !(item.textContent.trim() || item.getAttribute("aria-label")
        || item.getAttribute("aria-labelledby") || (item.labels && item.labels.length)))
    .map((item) => item.outerHTML)"""
    dangling = """() => [...document.querySelectorAll("*")].flatMap((item) =>
    ["aria-labelledby", "aria-describedby", "aria-controls"].flatMap((name) =>
        (item.getAttribute(name) || "").split(" ").filter((id) => id)))
    .filter((id) => !document.getElementById(id) && id !== "details-title")"""
    tab = reader
    assert tab.evaluate(nameless) == []
    assert tab.evaluate(dangling) == []
    assert tab.locator("h1").count() == 1
    for landmark in ("header", "main", "footer"):
        assert tab.locator(f"body > {landmark}").count() == 1
    for chart in tab.locator("figure.chart").all():
        assert chart.locator("figcaption").text_content().strip()


def test_a_chart_can_be_saved_and_sent_nowhere(reader) -> None:
    tab = reader
    chart = tab.locator("#progress")
    chart.hover()
    names = [
        button.get_attribute("aria-label") for button in chart.locator(".modebar button").all()
    ]
    assert not [name for name in names if "hare" in name or "loud" in name]
    with tab.expect_download() as download:
        chart.get_by_role("button", name=names[0]).click()
    assert Path(download.value.path()).read_text().startswith("<svg")
    hidden = tab.locator("svg.main-svg[aria-hidden=true]").count()
    assert hidden == tab.locator("svg.main-svg").count() > 0


def test_without_javascript_every_table_can_be_read(chromium, run_page) -> None:
    with opened(chromium, run_page, java_script_enabled=False) as tab:
        assert tab.locator("#candidates-section table").is_visible()
        assert tab.locator("#settings-section dl").first.is_visible()
        assert tab.get_by_text("need JavaScript").is_visible()
        assert not tab.locator("#theme").is_visible()
        assert not tab.locator(".plot").first.is_visible()


def test_a_browser_that_cannot_unpack_says_so_and_keeps_the_tables(chromium, run_page) -> None:
    context = chromium.new_context()
    tab = context.new_page()
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto(run_page.as_uri())
    assert "DecompressionStream" in tab.locator("#problem").inner_text()
    tab.get_by_role("tab", name="Candidates").click()
    assert tab.locator("#candidates-section table").is_visible()
    context.close()


def hostile_run(folder: Path) -> Path:
    source = PROGRAM.format(slot=3).replace("how many draws", HOSTILE)
    bad = replace(program(3), source=source, idea=HOSTILE, class_name=HOSTILE)
    bad = replace(bad, hyperparameters=((HOSTILE, HOSTILE),))
    family = [
        candidate(-1, 0.2, operator=HOSTILE, program=bad),
        candidate(0, 0.4, operator=HOSTILE, model=HOSTILE, program=bad),
        candidate(1, 0.5, parents=(0,), model=HOSTILE, feedback=feedback(0.5, (HOSTILE, "beta"))),
        candidate(2, None, kind=HOSTILE, message=HOSTILE, operator="new"),
    ]
    return write_archive(folder, family, prompt=HOSTILE, answer=HOSTILE, ended=HOSTILE)


def assert_harmless(tab: Any) -> None:
    """Nothing ran, and no element carries what could run or be loaded."""
    dangerous = """() => [...document.querySelectorAll("*")].filter((item) =>
        ["IMG", "IFRAME", "OBJECT", "EMBED", "LINK", "BASE", "FORM"].includes(item.tagName)
        || [...item.attributes].some(({ name, value }) => /^on|^src|srcdoc|^action/i.test(name)
            || (/href$/i.test(name) && !/^(#|data:image\\/png;base64,)/.test(value))))
        .map((item) => item.outerHTML.slice(0, 300))"""
    assert tab.evaluate("window.pwned") is None
    assert tab.evaluate(dangerous) == []
    # Data, Plotly's data, our script, and Plotly once it is unpacked.
    assert tab.locator("script").count() == 4


def test_nothing_that_a_model_wrote_runs(chromium, tmp_path: Path) -> None:
    page = written(hostile_run(tmp_path / "run"), tmp_path / "run.html")
    with opened(chromium, page) as tab:
        for title in tabs(tab):
            open_tab(tab, title)
            assert_harmless(tab)
        for slot in (0, 1, 2):
            open_tab(tab, "Family tree")
            click_node(tab, slot)
            for part in tab.locator("#details [role=tab]").all():
                part.click()
                assert_harmless(tab)
            for summary in tab.locator("#details summary").all():
                if summary.is_visible():
                    summary.click()
            assert_harmless(tab)
        open_tab(tab, "Family tree")
        tab.mouse.move(*node(tab, 0))
        tab.wait_for_timeout(100)
        assert_harmless(tab)
        # It is shown, though, as the text that it is.
        open_tab(tab, "Candidates")
        table = tab.locator("#candidates-section").inner_text()
        assert f"failed: {HOSTILE}" in table
        assert "&lt;" not in table
        assert "49" not in tab.locator("#candidates-section td.text").first.inner_text()


def hostile_bench(folder: Path) -> BenchResults:
    """A bench whose every free text is hostile."""
    results = BenchResults.load(write_bench(folder, names=("one",)))
    plan, found = results.plan, results.analysis
    assert found is not None
    features = replace(
        plan.spaces[0].features, name=HOSTILE, kernel=HOSTILE, device=HOSTILE, framework=HOSTILE
    )
    features = replace(
        features,
        parameters=tuple(
            replace(p, name=HOSTILE, values_text=HOSTILE) for p in features.parameters
        ),
        interactions=((HOSTILE, HOSTILE, 0.5),),
    )
    space = replace(plan.spaces[0], name=HOSTILE, clock=HOSTILE, features=features)
    old = plan.searchers[0].name
    searchers = (replace(plan.searchers[0], name=HOSTILE, versions={HOSTILE: HOSTILE}),)
    standings = tuple(
        replace(
            s,
            searcher=HOSTILE if s.searcher == old else s.searcher,
            spaces=tuple(replace(on, space=HOSTILE) for on in s.spaces),
            first_error=HOSTILE,
        )
        for s in found.standings
    )
    analysis = Analysis(standings, found.comparisons, None, (HOSTILE,), (HOSTILE,))
    runs = {
        key._replace(
            space=HOSTILE, searcher=HOSTILE if key.searcher == old else key.searcher
        ): trace
        for key, trace in results.runs.items()
    }
    plan = replace(plan, searchers=(*searchers, *plan.searchers[1:]), spaces=(space,))
    return BenchResults(plan, runs, analysis, (HOSTILE,), HOSTILE)


def test_nothing_that_a_bench_names_runs(chromium, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    write_report(hostile_bench(tmp_path / "bench"), page, title=HOSTILE)
    with opened(chromium, page) as tab:
        for title in tabs(tab):
            open_tab(tab, title)
            assert_harmless(tab)
        assert HOSTILE in tab.locator("h1").inner_text()


def test_a_report_of_a_run_under_way_reloads_until_told_not_to(chromium, run_folder, tmp_path):
    page = written(run_folder, tmp_path / "live.html", running="2026-01-01 00:00:00 UTC")
    context = chromium.new_context()
    tab = context.new_page()
    tab.clock.install()
    loads: list[str] = []
    tab.on("load", lambda _: loads.append("load"))
    tab.goto(page.as_uri() + "#cost")
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert "2026-01-01 00:00:00 UTC" in tab.locator(".running").inner_text()
    with tab.expect_event("load"):
        tab.clock.fast_forward(11_000)
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert tab.locator("#cost").is_visible()  # where the reader was
    tab.get_by_label(re.compile("Reload")).uncheck()
    tab.clock.fast_forward(60_000)
    tab.wait_for_timeout(100)
    assert len(loads) == 2
    context.close()
