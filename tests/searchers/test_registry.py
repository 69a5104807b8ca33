"""Specs and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.registry import resolve, searcher_names

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
    assert set(searcher_names()) >= {
        "random_search",
        "iterated_local_search",
        "genetic_algorithm",
        "differential_evolution",
        "simulated_annealing",
    }


@pytest.mark.parametrize("name", searcher_names())
def test_a_name_gives_source_and_class(name: str) -> None:
    found = resolve(name)
    assert f"class {found.class_name}" in found.source


def test_a_file_gives_its_only_callable_class(file: Path) -> None:
    found = resolve(str(file))
    assert (found.class_name, found.name) == ("Tabu", str(file))
    assert found.hyperparameters == {"tenure": 7, "rate": 0.5, "greedy": True}


def test_a_class_can_be_named(file: Path) -> None:
    assert resolve(f"{file}:Helper").class_name == "Helper"


def test_settings_take_the_type_of_the_default(file: Path) -> None:
    found = resolve(f"{file}:Tabu?tenure=3&rate=1&greedy=false")
    assert found.hyperparameters == {"tenure": 3, "rate": 1.0, "greedy": False}
    assert type(found.hyperparameters["rate"]) is float


def test_a_shipped_name_can_be_set() -> None:
    assert resolve("genetic_algorithm?offspring=9").hyperparameters["offspring"] == 9


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("genetic_algoritm", "did you mean genetic_algorithm"),
        ("zzz", "there are .*random_search"),
        ("", "but got ''"),
        ("missing.py", "readable UTF-8 text: .*missing.py"),
        ("genetic_algorithm?pop=3", r"numeric hyperparameter \(population_size, .*but got 'pop'"),
        ("genetic_algorithm?offspring=2.5", "offspring must be of type int like its default 5"),
        ("genetic_algorithm?offspring", "offspring must be of type int .*got ''"),
        ("random_search?x=1", r"numeric hyperparameter \(serial_batch\)"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, problem: str) -> None:
    with pytest.raises(SearcherError, match=problem):
        resolve(spec)


def test_an_unknown_class_is_refused(file: Path) -> None:
    with pytest.raises(SearcherError, match="classes in it: Helper, Tabu"):
        resolve(f"{file}:Other")


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
    with pytest.raises(SearcherError, match=r"the / after m in A.__init__"):
        resolve(str(path))
