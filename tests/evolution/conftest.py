from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.recordings import small_recording

from llamea_gpu.archive import Archive
from llamea_gpu.errors import TransportError
from llamea_gpu.evolution.calls import Observer
from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.loop import Evolution, Outcome
from llamea_gpu.evolution.session import Problem, build_ledger, build_problem, start
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import ChatAnswer, ChatRequest, RejectedAnswerError, Usage
from llamea_gpu.runner import Runner
from llamea_gpu.spaces.formats import export_recording

USAGE = Usage(1000, 500)


def chat_answer(text: str) -> ChatAnswer:
    return ChatAnswer(text, "canned", USAGE, "stop", "2026-01-01T00:00:00+00:00", 0.0)


class Scripted:
    """A route that answers from a table of (slot, attempt); anything else is a test's mistake."""

    def __init__(self, answers: Mapping[tuple[int, int], str | Exception]) -> None:
        self.answers = answers
        self.asked: list[ChatRequest] = []
        self.warnings: tuple[str, ...] = ()

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        self.asked.append(request)
        _, slot, attempt = request.request_id.split("-")
        found = self.answers[int(slot), int(attempt)]
        if isinstance(found, Exception):
            raise found
        return chat_answer(found)

    async def preflight(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def asked_ids(self) -> list[str]:
        return [request.request_id for request in self.asked]


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


@pytest.fixture(scope="session")
def spaces_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spaces")
    for number in range(3):
        recording = small_recording(f"small{number}", seed=number, workers=1 + 3 * (number == 2))
        export_recording(recording, folder / f"small{number}.parquet", "native")
    return folder


@pytest.fixture
def settings(spaces_folder: Path) -> EvolutionSettings:
    return EvolutionSettings(
        model="canned",
        spaces=("small0", "small1", "small2"),
        spaces_path=(str(spaces_folder),),
        candidates=4,
        offspring=2,
        parents=2,
        repeats=2,
        cascade_spaces=1,
        bootstrap=10,
        max_repairs=1,
        cpu_limit_s=5.0,
        seed_programs=("random_search", "iterated_local_search"),
    )


class Harness:
    """Runs an evolution in this process, with a scripted route and the real sandbox."""

    def __init__(self, folder: Path, runner: Runner) -> None:
        self.folder = folder
        self.runner = runner
        self.observer: Observer = lambda *_: None
        self._problems: dict[tuple[str, ...], Problem] = {}

    async def run(
        self, settings: EvolutionSettings, client: Scripted, archive: Archive | None = None
    ) -> tuple[Outcome, Archive]:
        problem = self._problems.setdefault(settings.spaces, build_problem(settings))
        archive = archive or start(
            self.folder / f"run{len(list(self.folder.iterdir()))}", settings, problem
        )
        ledger = build_ledger(settings)
        cascade = Cascade(problem.tasks, self.runner, archive, settings)
        observe = self.observer
        observe("started", None, {"ledger": ledger})
        evolution = Evolution(settings, archive, client, ledger, cascade, problem.facts, observe)
        outcome = await evolution.run(problem.seeds, problem.inspirations)
        self.ledger = ledger
        return outcome, archive


@pytest.fixture
def harness(tmp_path: Path, runner: Runner) -> Harness:
    return Harness(tmp_path, runner)


@pytest.fixture
def scripted() -> Callable[[Mapping[tuple[int, int], str | Exception]], Scripted]:
    return Scripted


@pytest.fixture
def refusal() -> RejectedAnswerError:
    return RejectedAnswerError("the model declined", chat_answer(""))


@pytest.fixture
def outage() -> TransportError:
    return TransportError("no route to the model")
