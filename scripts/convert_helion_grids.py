"""Convert Helion grid files to native recordings.

    python scripts/convert_helion_grids.py FOLDER_OF_GRID_FILES tuning_spaces

Writes one NAME.parquet a file, named after the space. The same input gives the same recording;
the bytes also depend on the version of pyarrow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from llamea_gpu.spaces.formats import export_recording, import_recording


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with *.json.gz or *.json grid files")
    parser.add_argument("target", type=Path, help="folder for the native recordings")
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True, exist_ok=True)
    for path in sorted(arguments.source.glob("*.json*")):
        recording, warnings = import_recording(path)
        target = arguments.target / f"{recording.info.name}.parquet"
        export_recording(recording, target, "native")
        failed = 1 - recording.ok.mean()
        print(f"{target}: {recording.space.size} configurations, {failed:.1%} failing")
        for warning in warnings:
            print(f"  {warning}")


if __name__ == "__main__":
    main()
