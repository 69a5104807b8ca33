"""The documentation: its links lead somewhere, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_the_site_builds_strictly_and_every_page_is_in_it(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference.html").read_text(encoding="utf-8")
    for name in ("llamea_gpu.api.load_space", "llamea_gpu.contract.Evaluate"):
        assert f'id="{name}"' in reference
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} == named
