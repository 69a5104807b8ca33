"""The script that records clouds of several kernels, without a GPU: what it keeps."""

from __future__ import annotations

import importlib.util
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.clouds import small_cloud

from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import RecordingError
from llamea_gpu.recording._base import HelionSettings
from llamea_gpu.recording.clouds import CloudOutcome, MixtureSettings
from llamea_gpu.spaces.formats import export_cloud, import_cloud

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "record_clouds.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_clouds", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(module, "PRELOAD", ())
    return module


@pytest.fixture
def recorded(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, MixtureSettings, HelionSettings]]:
    """What was recorded; swiglu fails with a cloud, rope without, softmax is stopped."""
    calls: list[tuple[str, MixtureSettings, HelionSettings]] = []

    def record_cloud(
        path: Path, output: Path, mixture: MixtureSettings, how: HelionSettings, template: Any
    ) -> Any:
        calls.append((path.stem, mixture, how))
        if path.stem == "rope":
            raise RecordingError("no such GPU")
        export_cloud(small_cloud(), output)
        journal_path(output).write_text("{}")
        if path.stem == "swiglu":
            raise RecordingError("twenty in a row")
        stopped = path.stem == "softmax"
        return CloudOutcome(small_cloud(), journal_path(output), 7, 7, 3.0, 9.0, stopped, {})

    monkeypatch.setattr(script, "record_cloud", record_cloud)
    return calls


def packed(out: Path) -> set[str]:
    with tarfile.open(out / "clouds.tar.gz") as archive:
        return set(archive.getnames())


def test_every_kernel_goes_into_one_archive(
    script: ModuleType,
    recorded: list[tuple[str, MixtureSettings, HelionSettings]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.main([str(tmp_path), "--deadline", "500", "matmul", "rope", "swiglu", "attention:small"])
    assert [(name, how.shape) for name, _, how in recorded] == [
        ("matmul", None),
        ("rope", None),
        ("swiglu", None),
        ("attention", "small"),
    ]
    assert recorded[0][2].seconds == 60.0
    clouds = {"matmul", "swiglu", "attention-small"}
    assert packed(tmp_path) == {f"{name}.cloud.parquet" for name in clouds}
    assert {path.name for path in tmp_path.iterdir()} == {"clouds.tar.gz", "log.txt"}
    said = capsys.readouterr().out
    assert said == (tmp_path / "log.txt").read_text()
    assert "matmul: 9 s, 7 measured" in said
    assert "best 0.5 ms" in said
    assert "no such GPU" in said
    assert "twenty in a row" in said
    with tarfile.open(tmp_path / "clouds.tar.gz") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    for path in (tmp_path / "out").iterdir():
        assert len(import_cloud(path)[0]) == 7

    script.main([str(tmp_path), "--deadline", "500", "matmul", "chunk_scan"])
    assert [name for name, *_ in recorded[4:]] == ["chunk_scan"]
    assert len(packed(tmp_path)) == 4


def test_it_stops_when_told_and_keeps_the_journal(
    script: ModuleType, recorded: list[Any], tmp_path: Path
) -> None:
    script.main([str(tmp_path), "--deadline", "500", "softmax", "matmul"])
    assert len(recorded) == 1
    names = {path.name for path in tmp_path.iterdir()}
    cloud = "softmax.cloud.parquet"
    assert names == {cloud, f"{cloud}.journal", "log.txt"}


def test_a_kernel_without_time_does_not_begin(
    script: ModuleType, recorded: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def slow(record: Callable[..., Any]) -> Callable[..., Any]:
        def recording(*arguments: Any, **options: Any) -> Any:
            now[0] += 62.0
            return record(*arguments, **options)

        return recording

    monkeypatch.setattr(script, "monotonic", lambda: now[0])
    monkeypatch.setattr(script, "record_cloud", slow(script.record_cloud))
    script.main([str(tmp_path), "--deadline", "100", "matmul", "chunk_scan", "attention"])
    assert [how.seconds for *_, how in recorded] == [60.0, 30.0]
    assert "attention: no time left" in (tmp_path / "log.txt").read_text()


def test_a_file_of_points_is_measured_alone(
    script: ModuleType, recorded: list[Any], tmp_path: Path
) -> None:
    header = {"names": ["a"], "values": [[1, 2]], "script": "matmul", "shape": "small"}
    rows = [{"c": [0], "how": "proposed"}, {"c": [1], "how": "control"}, {"c": [0], "how": "twice"}]
    wanted = tmp_path / "matmul-proposed.jsonl"
    wanted.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    script.main([str(tmp_path / "out"), "--deadline", "100", str(wanted), "no.jsonl"])
    (name, mixture, how), *others = recorded
    assert not others
    assert (name, how.shape, mixture.measurements) == ("matmul", "small", 2)
    assert mixture.points.rows[1] == ((1,), "control")
    assert packed(tmp_path / "out") == {"matmul-proposed.cloud.parquet"}
    assert "no.jsonl" in (tmp_path / "out" / "log.txt").read_text()
