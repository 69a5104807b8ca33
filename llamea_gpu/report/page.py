"""Renders a page into one HTML file that needs nothing else: no network, no other file.

Scripts, style, figures and Plotly are inside; Plotly and the data are compressed, and the page
unpacks them. A policy in the head forbids every script but the two whose digests it names, and
every request. Templates escape whatever they print, data stand in base64.

It does not decide what is shown.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamea_gpu import __version__
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.report.charts import Chart, Page, Section, Tree, plain_json

if TYPE_CHECKING:
    from jinja2 import Environment

_MARK = b'<meta name="generator" content="llamea-gpu'
_HEAD_BYTES = 4096
ASSETS = Path(__file__).resolve().parent / "assets"
SCRIPTS = ("page.js", "charts.js", "tables.js", "code.js", "details.js", "tree.js", "start.js")


def render_page(page: Page) -> str:
    """The whole file as text.

    Raises:
        LlameaGpuError: the extra ``report`` is not installed.
    """
    script = _script()
    plotly, plotly_digest = _plotly()
    payload = {"figures": _figures(page), "details": page.details}
    text = json.dumps(plain_json(payload), allow_nan=False, separators=(",", ":"))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            version=__version__,
            style=(ASSETS / "style.css").read_text(encoding="utf-8"),
            script=script,
            plotly=plotly,
            payload=_packed(text),
            policy=_policy(_digest(script), plotly_digest),
        )
    )


def _policy(*script_digests: str) -> str:
    scripts = " ".join(f"'sha256-{digest}'" for digest in script_digests)
    # Plotly writes styles while it draws; images are its own exports of a chart.
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _figures(page: Page) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    waiting: list[Section] = list(page.sections)
    while waiting:
        section = waiting.pop()
        waiting += section.children
        for block in section.blocks:
            if isinstance(block, Chart):
                figures[block.key] = block.figure
            elif isinstance(block, Tree):
                figures[block.chart.key] = block.chart.figure
                figures[f"{block.chart.key}-by-generation"] = block.by_generation
    return figures


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@functools.cache
def _plotly() -> tuple[str, str]:
    """Plotly's script packed, and its digest."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    return _packed(source), _digest(source)


def require_plotly() -> None:
    """Check that pages can be drawn.

    Raises:
        LlameaGpuError: Plotly is not installed.
    """
    from importlib.util import find_spec

    if find_spec("plotly") is None:
        raise LlameaGpuError(
            "a report needs Plotly, which is not installed: pip install 'llamea-gpu[report]'"
        )


def check_output(output: Path) -> None:
    """Refuse, before anything is computed, a file that no report can or should be written to.

    A report that stands there is replaced: it can be made again.

    Raises:
        LlameaGpuError: a folder, a file in no folder, a file of somebody else, or no Plotly.
    """
    require_plotly()
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise LlameaGpuError(f"a report must be a file in a folder that exists, but got {output}")
    if output.exists() and _MARK not in output.read_bytes()[:_HEAD_BYTES]:
        raise LlameaGpuError(
            f"{output} exists already and is no report: name another file, or remove it"
        )


@functools.cache
def _script() -> str:
    """The page's own script; one closure, so that nothing leaks between it and Plotly."""
    parts = [(ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();"


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(ASSETS),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
