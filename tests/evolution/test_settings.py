from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.errors import SettingsError
from llamea_gpu.evolution.settings import continued, read_file, recorded_settings, validated
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import load_cloud


def test_file_and_defaults(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('route = "replay"\nreplay = "answers.jsonl"\ncandidates = 7\n')
    settings = validated(read_file(file))
    assert (settings.candidates, settings.offspring) == (7, 8)
    assert settings.replay == str(tmp_path / "answers.jsonl")  # relative to the file


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": "m", "candidates": 0}, "candidates"),
        ({"model": "m", "candidats": 9}, "candidats"),
        ({"model": "m", "operators": {"refine": 0.0}}, "weight above 0"),
        ({"model": "m", "operators": {"mutate": 1.0}}, "mutate"),
        ({"model": "m", "operators": {"repair": 1.0}}, "repair"),
        ({"model": "m", "operators": {"sequential": 1.0}}, "sequential"),
        ({"model": "m", "strategy": "parallel"}, "strategy"),
        ({"route": "replay"}, "replay"),
        ({"route": "openai"}, "model"),
        ({"model": "m", "repeats": "many"}, "many"),
        ({"model": "m", "further_models": ["a", "m"]}, "distinct"),
    ],
)
def test_a_broken_rule_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        validated(fields)


def test_a_key_given_as_its_variable_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        validated({"model": "m", "api_key_env": "sk-proj-SECRET"})
    assert "SECRET" not in str(caught.value)


def test_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("candidates = = 7")
    with pytest.raises(SettingsError, match="TOML"):
        read_file(file)
    with pytest.raises(SettingsError, match="readable"):
        read_file(tmp_path / "absent.toml")


def test_a_continued_run_may_change_budgets_but_not_what_results_depend_on() -> None:
    recorded = validated({"model": "m"}).model_dump_json()
    assert continued(recorded, {"candidates": 99, "workers": 1}).candidates == 99
    with pytest.raises(SettingsError, match="repeats"):
        continued(recorded, {"repeats": 3})


def test_a_sequential_run_asks_one_after_another_unless_told() -> None:
    assert validated({"model": "m", "strategy": "sequential"}).offspring == 1
    told = validated({"model": "m", "strategy": "sequential", "offspring": 3})
    assert told.offspring == recorded_settings(told.model_dump_json()).offspring == 3
    with pytest.raises(SettingsError, match="strategy"):
        continued(told.model_dump_json(), {"strategy": "evolution"})


@pytest.mark.parametrize(
    "file",
    sorted(resource_dir("generated_optimizers").glob("runs/*/evolve.toml")),
    ids=lambda file: file.parent.name,
)
def test_the_settings_of_every_shipped_run_are_read(file: Path) -> None:
    words = {"best-of-n": "independent", "independent": "independent", "sequential": "sequential"}
    name = file.parent.name
    expected = next((words[word] for word in words if word in name), "evolution")
    assert validated(read_file(file)).strategy == expected


@pytest.mark.parametrize(
    "file",
    sorted(resource_dir("generated_optimizers").glob("runs/[wc]h*-*/evolve.toml")),
    ids=lambda file: file.parent.name,
)
def test_recorded_runs_on_whole_spaces_find_the_clouds_that_they_knew(file: Path) -> None:
    settings = validated(read_file(file))
    folders = [Path(folder) for folder in settings.spaces_path]
    found = {spec: load_cloud(spec, folders) for spec in settings.spaces}
    grown = file.parent.name.startswith("cheap-")
    rows = {
        "attention-4x16x4096x128-h200": 3555 if grown else 1138,
        "layer_norm-32768x16384-h200": 822,
        "layer_norm-32768x2048-h200": 17_611 if grown else 1056,
        "matmul-2048x2048-h200": 7286 if grown else 2047,
        "softmax-32768x1024-h200": 692,
        "swiglu-8192x8192-h200": 758,
    }
    assert {name: len(cloud) for name, cloud in found.items()} == {n: rows[n] for n in found}
    assert {cloud.recipe for cloud in found.values()} == {2}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"model": 7}', "[" * 100_000])
def test_damaged_recorded_settings_are_one_message(text: str) -> None:
    with pytest.raises(SettingsError, match="damaged or foreign"):
        recorded_settings(text)
