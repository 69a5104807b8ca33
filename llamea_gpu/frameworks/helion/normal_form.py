"""Helion's normalisation of configurations, learnt from Helion and as exact, twenty times as fast.

Helion takes a quarter of a millisecond to normalise a configuration, and a simulated run on a whole
space asks for ten thousand. What it makes of a parameter depends on few others (``maxnreg`` on
``pid_type`` and ``num_warps``), so that its answers can be kept by those alone: a table for each
parameter that ever changes.

What it does: finds out which parameters each one depends on, by asking Helion about many changes
of one and of two parameters; answers what the tables hold. Every other question goes to Helion,
whose answer is compared with all tables: one that disagrees reveals a dependency that was missed,
which is then found and added.

What it does not do: work where Helion refuses configurations or gives values that are not on the
lists (`NormalForm.learn` then says so): Helion is asked every time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Config = tuple[int, ...]
Ask = Callable[[Config], Config | None]

_BASES = 24  # random configurations of which every change of one parameter is asked for
_PAIRED_BASES = 2  # configurations of which changes of two are
_PAIRED_VALUES = 2  # of each parameter that are tried in pairs
_CHECKED = 500  # random configurations at a time, until so many bring nothing new
_MOST_CHECKS = 12
_AUDITED = 256  # one answer in so many is compared with Helion's


class NoTablesError(Exception):
    """Helion refuses a configuration, or answers one question in two ways."""


class NormalForm:
    """What normalisation makes of value indices, by parameter."""

    def __init__(self, ask: Ask, cardinalities: Sequence[int]) -> None:
        self._ask = ask
        self._cardinalities = tuple(cardinalities)
        self._places = range(len(self._cardinalities))
        # Of each parameter that may change: what it depends on, itself included, and the answers,
        # with the configuration that each was learnt from.
        self._inputs: dict[int, list[int]] = {}
        self._tables: dict[int, dict[Config, tuple[int, Config]]] = {}
        self._asked_before: dict[Config, Config] = {}
        self._answered = 0

    @classmethod
    def learn(
        cls, ask: Ask, cardinalities: Sequence[int], starts: Iterable[Config]
    ) -> NormalForm | None:
        """From what ``ask`` makes of configurations; None where it refuses any.

        ``starts`` are valid ones around which searches begin.
        """
        form = cls(ask, cardinalities)
        rng = random.Random(0)  # noqa: S311
        starts = list(starts)
        drawn = [form._mixed(rng, rng.choice(starts), n / _BASES) for n in range(_BASES)]
        try:
            for base in [*starts[:_PAIRED_BASES], *drawn]:
                form._probe(base, form._singles(base))
            for base in starts[:_PAIRED_BASES]:
                form._probe(base, form._pairs(rng, base))
            form._check(rng, starts)
        except NoTablesError:
            return None
        return form

    @classmethod
    def recalled(
        cls, ask: Ask, cardinalities: Sequence[int], answers: NDArray[np.int64]
    ) -> NormalForm:
        """From the `answers` of one that was learnt before, of the same ``ask``.

        Raises:
            NoTablesError: they are not of one such function.
        """
        form = cls(ask, cardinalities)
        if answers.ndim != 3 or answers.shape[0] != 2 or answers.shape[2] != len(cardinalities):
            raise NoTablesError
        questions, answered = answers.tolist()
        for key, answer in zip(questions, answered, strict=True):
            form._note(tuple(key), tuple(answer))
        return form

    @property
    def answers(self) -> NDArray[np.int64]:
        """What Helion was asked, and what it answered: (2, n, parameters) value indices."""
        pairs = [list(self._asked_before), list(self._asked_before.values())]
        return np.array(pairs, dtype=np.int64)

    def of(self, key: Config) -> Config:
        """The normalised configuration of indices in range.

        Raises:
            NoTablesError: Helion refuses it, or answers one question in two ways.
        """
        self._answered += 1
        if self._answered % _AUDITED:
            indices = list(key)
            for place, inputs in self._inputs.items():
                known = self._tables[place].get(tuple([key[i] for i in inputs]))
                if known is None:
                    break
                indices[place] = known[0]
            else:
                return tuple(indices)
        answer = self._asked(key)
        self._note(key, answer)
        return answer

    def _check(self, rng: random.Random, starts: Sequence[Config]) -> None:
        """Ask about random configurations, from near the starts to far off, for what was missed."""
        for _ in range(_MOST_CHECKS):
            before = sum(map(len, self._inputs.values()))
            for number in range(_CHECKED):
                key = self._mixed(rng, rng.choice(starts), number / _CHECKED)
                self._note(key, self._asked(key))
            if sum(map(len, self._inputs.values())) == before:
                return

    def _mixed(self, rng: random.Random, start: Config, share: float) -> Config:
        """Random indices, but for a share of the parameters, which are those of ``start``."""
        return tuple(
            start[place] if rng.random() < share else rng.randrange(count)
            for place, count in enumerate(self._cardinalities)
        )

    def _singles(self, base: Config) -> Iterable[Config]:
        for place, count in enumerate(self._cardinalities):
            for value in range(count):
                yield (*base[:place], value, *base[place + 1 :])

    def _pairs(self, rng: random.Random, base: Config) -> Iterable[Config]:
        tried = [
            rng.sample(
                [v for v in range(count) if v != base[place]], min(_PAIRED_VALUES, count - 1)
            )
            for place, count in enumerate(self._cardinalities)
        ]
        for a, b in itertools.combinations(self._places, 2):
            for value, other in itertools.product(tried[a], tried[b]):
                yield (*base[:a], value, *base[a + 1 : b], other, *base[b + 1 :])

    def _probe(self, base: Config, changed: Iterable[Config]) -> None:
        for key in (base, *changed):
            self._note(key, self._asked(key))

    def _asked(self, key: Config) -> Config:
        answer = self._ask(key)
        if answer is None:
            raise NoTablesError
        return answer

    def _note(self, key: Config, answer: Config) -> None:
        """Keep Helion's answer; where a table says otherwise, find out what it overlooks."""
        self._asked_before[key] = answer
        for place in self._places:
            if place not in self._inputs:
                if answer[place] == key[place]:
                    continue
                self._inputs[place] = [place]
                self._fit(place)
            inputs, table = self._inputs[place], self._tables[place]
            known, _ = table.setdefault(tuple([key[i] for i in inputs]), (answer[place], key))
            if known != answer[place]:
                self._fit(place)

    def _fit(self, place: int) -> None:
        """The parameter's table anew, with as many more inputs as all answers ask for."""
        inputs = self._inputs[place]
        while True:
            table = self._tables[place] = {}
            for key, answer in self._asked_before.items():
                known, example = table.setdefault(
                    tuple([key[i] for i in inputs]), (answer[place], key)
                )
                if known != answer[place]:
                    self._find_input(place, example, key)
                    break
            else:
                return

    def _find_input(self, place: int, example: Config, key: Config) -> None:
        """Add the parameter whose change, on the way from ``example`` to ``key``, changes it."""
        here = example
        before = self._asked(here)[place]
        for i in self._places:
            if here[i] == key[i] or i in self._inputs[place]:
                continue
            here = (*here[:i], key[i], *here[i + 1 :])
            after = self._asked(here)[place]
            if after != before:
                self._inputs[place].append(i)
                return
            before = after
        raise NoTablesError  # the same question has two answers
