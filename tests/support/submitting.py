"""Optimizers that check what `submit` and `wait` promise of any ``evaluate``, and then return.

They need numpy alone, so that the text of this file runs in the sandbox, too. Each asks for less
than the budget holds, unless its name says otherwise.
"""

from __future__ import annotations

import numpy as np

# Of any evaluate, whatever its budget.
CHECKS = (
    "EverySubmissionIsHandedOutOnce",
    "WhatIsSubmittedTwiceIsMeasuredOnce",
    "WhatIsKnownIsFree",
    "ACallLeavesTheOthersToLaterWaits",
    "NothingIsHarmless",
    "AnInvalidOneQueuesNothing",
    "AFloodIsRefused",
    "ArraysAreConfigurations",
)


def refusal(evaluate, configs):
    """The text of the ValueError that submitting raises; empty when it raises none."""
    try:
        evaluate.submit(configs)
    except ValueError as error:
        return str(error)
    return ""


class EverySubmissionIsHandedOutOnce:
    def __call__(self, evaluate, space, rng):
        configs = space.sample(12)
        evaluate.submit(configs[:5])
        assert evaluate.pending == 5
        evaluate.submit(configs[5:])
        spent, done = evaluate.spent, []
        while evaluate.pending:
            before = evaluate.pending
            some = evaluate.wait()
            assert some
            assert evaluate.pending == before - len(some)
            assert evaluate.spent >= spent
            spent = evaluate.spent
            done += some
        assert sorted(config for config, _ in done) == sorted(configs)
        assert evaluate([config for config, _ in done]) == [cost for _, cost in done]
        assert evaluate.spent == spent  # revisits, every one
        assert evaluate.wait() == []


class WhatIsSubmittedTwiceIsMeasuredOnce:
    def __call__(self, evaluate, space, rng):
        first, second = space.sample(2)
        evaluate.submit([first, second, first])
        evaluate.submit([first])
        assert evaluate.pending == 4
        done = []
        while evaluate.pending:
            some = evaluate.wait()
            assert [config for config, _ in some].count(first) in (0, 3)
            done += some
        assert len({cost for config, cost in done if config == first}) == 1
        assert len(done) == 4


class WhatIsKnownIsFree:
    def __call__(self, evaluate, space, rng):
        known, other = space.sample(2)
        cost = evaluate([known])[0]
        spent = evaluate.spent
        evaluate.submit([known])
        assert evaluate.wait() == [(known, cost)]
        assert evaluate.spent == spent
        evaluate.submit([other, known])
        done = evaluate.wait()
        assert (known, cost) in done  # whatever the other one takes
        while evaluate.pending:
            done += evaluate.wait()
        assert sorted(config for config, _ in done) == sorted([other, known])


class ACallLeavesTheOthersToLaterWaits:
    def __call__(self, evaluate, space, rng):
        configs = space.sample(8)
        evaluate.submit(configs[:6])
        costs = evaluate(configs[4:])
        assert len(costs) == 4
        assert evaluate.pending == 6
        done = {}
        while evaluate.pending:
            done.update(evaluate.wait())
        assert sorted(done) == sorted(configs[:6])
        assert [done[config] for config in configs[4:6]] == costs[:2]


class NothingIsHarmless:
    def __call__(self, evaluate, space, rng):
        spent = evaluate.spent
        evaluate.submit([])
        assert evaluate.pending == 0
        assert evaluate.wait() == []
        evaluate.submit(np.empty((0, len(space.names)), dtype=np.int64))
        assert evaluate.wait() == []
        assert evaluate.spent == spent


class AnInvalidOneQueuesNothing:
    def __call__(self, evaluate, space, rng):
        valid, spent = space.sample(1)[0], evaluate.spent
        for wrong in ((10**6,) * len(valid), (*valid, 0), "no", 3):
            assert "configuration" in refusal(evaluate, [valid, wrong]), wrong
            assert evaluate.pending == 0
        assert evaluate.wait() == []
        assert evaluate.spent == spent


class AFloodIsRefused:
    def __call__(self, evaluate, space, rng):
        config = space.sample(1)[0]
        evaluate.submit([config] * 1000)
        while not (text := refusal(evaluate, [config] * 1000)):
            pass
        assert "on their way" in text
        pending = evaluate.pending
        assert 1000 <= pending <= 65_536
        done = evaluate.wait()
        assert len(done) == pending
        assert set(done) == {(config, evaluate([config])[0])}
        evaluate.submit([config])
        assert evaluate.pending == 1


class ArraysAreConfigurations:
    def __call__(self, evaluate, space, rng):
        rows = space.pool(6)[:6]
        evaluate.submit(rows)
        evaluate.submit([list(map(int, rows[0]))])
        done = []
        while evaluate.pending:
            done += evaluate.wait()
        for config, cost in done:
            assert type(config) is tuple
            assert {type(index) for index in config} == {int}
            assert type(cost) is float
        assert {config for config, _ in done} == {tuple(map(int, row)) for row in rows}


class TheEndOfTheBudgetComesOutOfWait:
    def __call__(self, evaluate, space, rng):
        evaluate.submit(space.sample(10_000))
        while True:
            evaluate.wait()


class TheEndOfTheBudgetComesOutOfSubmit:
    def __call__(self, evaluate, space, rng):
        for config in space.sample(10_000):
            evaluate([config])
            if evaluate.spent == 1.0:
                break
        known = config
        evaluate.submit([known])
        assert evaluate.wait()
        evaluate.submit([config for config in space.sample(10_000) if config != known][-1:])
        raise AssertionError("the run is over")


class ReturnsBeforeAnythingIsDone:
    def __call__(self, evaluate, space, rng):
        evaluate.submit(space.sample(5))


class WaitsForNothingForEver:
    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
        while True:
            evaluate.wait()


class SubmitsWhatIsKnownForEver:
    def __call__(self, evaluate, space, rng):
        config = space.sample(1)[0]
        while True:
            evaluate.submit([config])
            evaluate.wait()


class ThisAndThat:
    """Calls, submissions and waits at random: its trace is the same wherever it runs."""

    def __call__(self, evaluate, space, rng):
        configs = space.sample(10_000)
        while True:
            chance = rng.random()
            some = [configs[rng.integers(len(configs))] for _ in range(rng.integers(1, 6))]
            if chance < 0.2:
                evaluate(some)
            elif chance < 0.6 and evaluate.pending < 30:
                evaluate.submit(some)
            else:
                evaluate.wait()
