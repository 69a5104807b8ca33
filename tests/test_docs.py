"""The documentation: its links lead somewhere, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    paths = [link.partition("#")[0] for link in links if "://" not in link]
    gone = [path for path in paths if path and not (page.parent / path).exists()]
    assert not gone


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_the_reference_is_of_docstrings(site: Path) -> None:
    reference = (site / "reference.html").read_text(encoding="utf-8")
    for name in ("llamea_gpu.api.load_space", "llamea_gpu.contract.Evaluate"):
        assert f'id="{name}"' in reference
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} == named


def test_the_site_in_a_browser_asks_nobody_else_and_leads_to_the_reference(
    site: Path, chromium: Any
) -> None:
    tab = chromium.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((site / "index.html").as_uri())
    assert tab.get_by_role("heading", name="I write kernels").is_visible()
    tab.get_by_role("link", name="reference", exact=True).click()
    tab.wait_for_url("**/reference.html")
    assert tab.locator('[id="llamea_gpu.api.Search.best_so_far"]').is_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
