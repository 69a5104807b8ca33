"""Writing a report needs the extra, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_without_the_extra_the_error_names_it(run_folder: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['plotly'] = None; import llamea_gpu.cli as cli\n"
    arguments = ["llamea-gpu", "report", str(run_folder), "-o", str(tmp_path / "r.html")]
    code += f"sys.argv = {arguments}; cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "llamea-gpu[report]" in done.stderr
    assert "Traceback" not in done.stderr
