"""Specs and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Provenance
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.searchers.registry import known_searchers, resolve, resolve_program
from llamea_gpu.searchers.spec import SCHEMES, Spec

SOURCE = """
raise RuntimeError("resolving a searcher must not run it")


class Helper:
    pass


class Tabu:
    def __init__(self, tenure=7, rate=0.5, *, greedy=True, label="x", size=len("abc")):
        pass

    def __call__(self, evaluate, space, rng):
        pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_classical_searchers_have_names() -> None:
    assert set(shipped()) >= {
        "random_search",
        "iterated_local_search",
        "genetic_algorithm",
        "differential_evolution",
        "simulated_annealing",
    }


@pytest.mark.parametrize("name", tuple(shipped()))
def test_a_name_gives_source_and_class(name: str) -> None:
    program = resolve_program(name).program
    assert f"class {program.class_name}" in program.source


def test_a_file_gives_its_only_callable_class(file: Path) -> None:
    found = resolve_program(str(file))
    assert (found.program.class_name, found.name) == ("Tabu", str(file))
    assert found.program.settings == {"tenure": 7, "rate": 0.5, "greedy": True, "label": "x"}


def test_a_class_can_be_named(file: Path) -> None:
    file.write_text(f"{SOURCE}\n\nclass Other(Tabu):\n    pass\n\n\nclass Third(Tabu):\n    pass\n")
    assert resolve_program(f"{file}:Other").program.class_name == "Other"
    with pytest.raises(SearcherError, match=r"but Other, Third all are.*FILE.py:Class"):
        resolve(str(file))


def test_settings_take_the_type_of_the_default(file: Path) -> None:
    settings = resolve_program(f"{file}:Tabu?tenure=3&rate=1&greedy=false&label=y").program.settings
    assert settings == {"tenure": 3, "rate": 1.0, "greedy": False, "label": "y"}
    assert type(settings["rate"]) is float


def test_a_shipped_name_can_be_set() -> None:
    assert resolve_program("genetic_algorithm?offspring=9").program.settings["offspring"] == 9


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("genetic_algoritm", "did you mean genetic_algorithm"),
        ("zzz", "'searchers list' shows"),
        ("", "but got ''"),
        ("missing.py", "no file missing.py"),
        ("LFBO", "did you mean helion:LFBOTreeSearch or helion:LFBOPatternSearch"),
        ("kernel_tunr:pso", "did you mean kernel_tuner"),
        ("kernel_tuner:genetic", "did you mean genetic_algorithm"),
        ("helion:LFBO", "did you mean LFBOTreeSearch or LFBOPatternSearch"),
        ("scipy:annealing", "did you mean dual_annealing"),
        ("optuna:tpe", "did you mean TPESampler"),
        ("genetic_algorithm?pop=3", "no setting 'pop': did you mean population_size"),
        ("genetic_algorithm?offspring=2.5", "offspring must be of type int like its default 5"),
        ("genetic_algorithm?offspring", "offspring must be of type int .*got ''"),
        ("random_search?x=1", "no setting 'x': there are serial_batch"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, problem: str) -> None:
    with pytest.raises(SearcherError, match=problem):
        resolve(spec)


def test_an_unknown_class_is_refused(file: Path) -> None:
    with pytest.raises(SearcherError, match=r"no class Other .* classes in it: Helper, Tabu"):
        resolve(f"{file}:Other")
    with pytest.raises(SearcherError, match="Helper needs __call__"):
        resolve(f"{file}:Helper")


@pytest.mark.parametrize("source", [b"class :", b"x = 1", b"\xff\xfe", b"x = '\x00'"])
def test_files_without_an_optimizer_are_refused(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "bad.py"
    path.write_bytes(source)
    with pytest.raises(SearcherError):
        resolve(str(path))


def test_hyperparameters_by_position_only_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class A:\n def __init__(self, m=1, /): ...\n def __call__(self, e, s, r): ...\n"
    )
    with pytest.raises(SearcherError, match=r"the / after m in __init__"):
        resolve(str(path))


# -- settings beside a spec, and its parts ------------------------------------------------------


def test_settings_beside_the_spec_win_and_are_in_the_name(file: Path) -> None:
    found = resolve_program(f"{file}?rate=2&tenure=5", {"tenure": 6, "greedy": False})
    assert found.program.settings == {"tenure": 6, "rate": 2.0, "greedy": False, "label": "x"}
    assert found.name == f"{file}?rate=2&tenure=5&tenure=6&greedy=false"
    assert resolve(found.name) == found
    assert resolve("kernel_tuner:pso?popsize=9", {"popsize": 7}) == resolve(
        "kernel_tuner:pso?popsize=9&popsize=7"
    )


def test_a_wrong_setting_beside_the_spec_is_refused(file: Path) -> None:
    with pytest.raises(SearcherError, match="tenure must be of type int"):
        resolve(str(file), {"tenure": 1.5})
    with pytest.raises(SearcherError, match="settings of a hybrid must stand in its spec"):
        resolve("hybrid:random_search+random_search", {"share": 0.5})


@pytest.mark.parametrize(
    ("text", "scheme", "target", "name", "without_folder"),
    [
        ("random_search", "", "random_search", "random_search", "random_search"),
        ("a/b.c/mine.py:Tabu?x=1", "", "a/b.c/mine.py:Tabu", "mine", "mine.py:Tabu?x=1"),
        ("/tmp/mine.py", "", "/tmp/mine.py", "mine", "mine.py"),
        ("kernel_tuner:pso?x=1&y=2", "kernel_tuner", "pso", "pso", "kernel_tuner:pso?x=1&y=2"),
        ("hybrid:a?x=1+b?y=2", "hybrid", "a", "a", "hybrid:a?x=1+b?y=2"),
        ("llm:org/m", "llm", "org/m", "org/m", "llm:org/m"),
        ("nothing:known", "", "nothing:known", "nothing:known", "nothing:known"),
    ],
)
def test_a_spec_has_parts_and_is_the_same_together(
    text: str, scheme: str, target: str, name: str, without_folder: str
) -> None:
    spec = Spec.parse(text)
    assert (spec.scheme, spec.target, spec.name) == (scheme, target, name)
    assert str(spec) == text
    assert str(spec.without_folder()) == without_folder


def test_a_card_tells_nothing_of_a_file(file: Path) -> None:
    found = resolve_program(str(file))
    assert found.short_name == "mine"
    assert found.provenance == Provenance("file")
    assert found.program.source == SOURCE


def test_a_scheme_without_fixed_names_lists_none() -> None:
    known = known_searchers()
    assert {scheme for scheme, names in known.items() if not names} == {"optalg", "llm", "hybrid"}
    assert set(known) == {"classical", "generated", *SCHEMES}
