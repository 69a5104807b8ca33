import math

import numpy as np
from scipy.special import ndtr

FAILURE = 3.0  # log of how much dearer a configuration gets that is sure to fail


def worth(mean, spread, best):
    """Log of the expected gain, a lognormal gap being compared with the best one, as a share of the latter."""
    margin = (best - mean) / spread
    gain = ndtr(margin) - np.exp(mean - best + 0.5 * spread**2) * ndtr(margin - spread)
    return np.log(np.maximum(gain, 1e-9))


class Kriging:
    """Gaussian process on binary codes that learns by and by how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log decay rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return np.exp(-np.maximum(distance, 0.0))

    def noisy(self, x):
        return self.kernel(x, x) + math.exp(self.logs[-1]) * np.eye(len(x))

    def explain(self, noisy, y):
        inverse = np.linalg.inv(noisy)
        ones = inverse.sum(axis=0)
        center = (ones @ y + self.far) / (ones.sum() + 1.0)
        weights = inverse @ (y - center)
        return inverse, center, weights, ((y - center) @ weights + 1.0) / (len(y) + 1)

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; binary codes make its slope two matrix products."""
        known = np.isfinite(y)
        x, y = x[known], y[known]
        for _ in range(steps):
            noisy = self.noisy(x)
            inverse, _, weights, variance = self.explain(noisy, y)
            pull = np.outer(weights, weights) / variance - inverse
            shared = pull * noisy
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            self.logs += np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)  # curvature grows with the data

    def predict(self, x, y, points):
        """Mean and kernel at the points, and variance; what is unknown leaves the mean alone."""
        known = np.isfinite(y)
        _, center, weights, variance = self.explain(self.noisy(x[known]), y[known])
        near = self.kernel(points, x)
        return center + near[:, known] @ weights, near, variance


class LiveShortlist:
    """Keep a short list of candidates under one joint Gaussian belief, which every result updates at once by a stored
    gain vector: each choice of the most expected gain per second uses the latest news, yet models are fitted rarely."""

    def __init__(
        self, shortest=8, longest=64, shortlist=128, children=200, keep=96, growth=1.25, resolution=0.002, heat=0.5
    ):
        self.shortest, self.longest = shortest, longest  # choices from one list; between them a tenth of the results
        self.shortlist = shortlist
        self.children = children
        self.keep = keep  # results that the models see
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.heat = heat  # of the choice, if nothing has improved since the beginning

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        d = len(self.cards)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        owner = np.repeat(np.arange(d), [code.shape[1] for code in self.codes])
        self.span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 1.0)  # of one step or change
        span = (self.span * np.where(self.ordinal, 1.0, 0.5))[owner]
        # far away, kernels are e times slower, and a success is e times dearer
        self.times, self.prices = (Kriging(owner, span, d, far) for far in (0.0, 1.0))
        self.archive, self.news = np.empty((0, d), dtype=int), []
        self.heights, self.took = [], []  # log times, inf for failures; shares of the budget
        self.asked, self.waiting, self.gains = set(), {}, {}
        self.best, self.record, self.nearby = math.inf, 0, None
        self.due = self.left = 0  # next lesson; choices until the next plan
        self._send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            for config, cost in done:
                self._note(config, cost, evaluate.spent)
            while evaluate.pending < evaluate.parallel and (fresh := self._choose()):
                self._send(evaluate, fresh)

    def _send(self, evaluate, configs):
        self.asked.update(configs)
        self.waiting.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def _note(self, config, cost, now):
        height = math.log(max(cost, 1e-12))
        self.news.append(config)
        self.heights.append(height)
        self.took.append(now - self.waiting.pop(config, now))
        j, gain = self.gains.pop(config, (0, None))
        if height < self.best:  # what was planned around the former best is old news
            self.best, self.record, self.nearby, self.left = height, len(self.heights), None, 0
        elif gain is not None and height < math.inf:
            self.mean += gain * (math.log(height - self.best + self.scale) - self.mean[j])
        elif gain is not None:
            self.bonus -= gain * FAILURE  # its likes will hardly do better

    def _condition(self, j):
        """Make the belief as sure as if candidate j was known; return how its result will shift the means."""
        gain = self.cov[:, j] / (max(self.cov[j, j], 0.0) + self.noise)
        self.cov -= np.outer(gain, self.cov[j])
        return gain

    def _choose(self):
        """One new configuration from the short list, else some strangers, else none."""
        if self.best < math.inf:
            if self.left <= 0:
                self._plan()
            while self.free.any():
                spread = np.sqrt(np.maximum(self.cov.diagonal(), 1e-8))
                promise = worth(self.mean, spread, math.log(self.scale)) + self.bonus
                j = int(np.argmax(np.where(self.free, promise, -np.inf)))
                self.free[j] = False
                config = self.space.repair(tuple(self.pool[j].tolist()))  # only now: it is slow
                if config not in self.asked:
                    self.left -= 1
                    self.gains[config] = (j, self._condition(j))
                    return [config]
            self.left = 0
        for count in (32, 1024):
            strangers = [config for config in self.space.sample(count) if config not in self.asked]
            if strangers:
                return strangers[: self.shortest]
        return []

    def _plan(self):
        """Fit the models; lay out the joint belief on what is on its way and on the candidates of most promise."""
        d = len(self.cards)
        self.archive = np.vstack([self.archive, np.array(self.news, dtype=int).reshape(-1, d)])
        self.news = []
        heights, took = np.array(self.heights), np.array(self.took)
        n, failed, order = len(heights), ~np.isfinite(heights), np.argsort(heights, kind="stable")
        parents = self.archive[order[: n - int(failed.sum())]]
        if self.nearby is None:
            self.nearby = np.array(self.space.neighbors(tuple(parents[0].tolist())), dtype=int).reshape(-1, d)
        # the models see the best, the latest, and what is most like the best: effects of single steps from there
        apart = self.archive - parents[0]
        apart = np.where(self.ordinal, np.abs(apart), apart != 0) @ (self.span * np.exp(self.times.logs[:-1]))
        third = self.keep // 3
        like = np.argsort(apart, kind="stable")
        rows = np.unique(np.concatenate([order[:third], like[:third], np.arange(n)[-third:]]))

        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        gaps = heights - self.best
        self.scale = max(float(np.quantile(gaps[~failed], 0.1)), self.resolution)
        target = np.log(gaps[rows] + self.scale)
        paid = took > 0.0  # what had been measured before the run tells nothing of durations
        usual = took[paid].mean() if paid.any() else 1.0
        # equal code takes no time, but buys nothing: nothing is much cheaper than usual
        effort = np.where(paid, np.log(took / usual + 0.25) + FAILURE * failed, np.nan)[rows]

        waiting = list(self.waiting)
        ideas = np.vstack([self.nearby, self._breed(parents)])
        new = np.array([idea not in self.asked for idea in map(tuple, ideas.tolist())], dtype=bool)
        ideas = np.vstack([np.array(waiting, dtype=int).reshape(-1, d), ideas[new]])
        both = np.vstack([self.archive[rows], ideas])
        both = np.hstack([code[both[:, i]] for i, code in enumerate(self.codes)])
        x, points = both[: len(rows)], both[len(rows) :]
        if n >= self.due:
            self.due = int(self.growth * n) + 1
            self.times.learn(x, target)
            self.prices.learn(x, effort)

        mean, near, variance = self.times.predict(x, target, points)
        price = self.prices.predict(x, effort, points)[0]
        blend = near @ np.linalg.inv(self.times.noisy(x))  # failures too leave nothing to find out nearby
        spread = np.sqrt(variance * np.maximum(1.0 - (blend * near).sum(axis=1), 1e-6))
        # Gumbel noise draws in proportion to a power: the longer nothing has improved, the less the model decides
        heat = self.heat * (n - self.record) / n
        bonus = heat * self.rng.gumbel(size=len(points)) - price
        promise = worth(mean, spread, math.log(self.scale)) + bonus
        promise[: len(waiting)] = np.inf  # what is on its way belongs to the list, but is not free
        top = np.argsort(-promise, kind="stable")[: len(waiting) + self.shortlist]
        self.pool, self.mean, self.bonus = ideas[top], mean[top], bonus[top]
        self.cov = variance * (self.times.kernel(points[top], points[top]) - blend[top] @ near[top].T)
        self.noise = variance * math.exp(self.times.logs[-1])
        self.free = np.arange(len(top)) >= len(waiting)
        self.gains = {config: (j, self._condition(j)) for j, config in enumerate(waiting)}
        self.left = min(max(n // 10, self.shortest), self.longest)

    def _breed(self, parents):
        """Children of anything that works, mostly of the best: mixtures, or changes mostly of what matters."""
        rng, d, count = self.rng, len(self.cards), self.children
        shape = (count, d)
        mothers, fathers = (
            parents[((len(parents) + 1) ** (rng.random(count) ** 2)).astype(int) - 1] for _ in range(2)
        )
        crossed = rng.random((count, 1)) < 0.3
        child = np.where(crossed & (rng.random(shape) < 0.5), fathers, mothers)
        matters = 1.0 - np.exp(-self.span * np.exp(self.times.logs[:-1]))
        chance = 0.5 / d + 0.5 * matters / matters.sum()
        changes = (d / 2.0) ** rng.random((count, 1))  # mostly few, at most about half of them
        mutated = ~crossed & (rng.random(shape) < changes * chance)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return np.where(mutated, value, child)
