import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log decay rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return np.exp(-np.maximum(distance, 0.0))

    def noise(self):
        return math.exp(self.logs[-1])

    def explain(self, x, y):
        """Kernel, inverse, center, weights and variance; nothing needs to be known yet."""
        kernel = self.kernel(x, x)
        inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
        ones = inverse.sum(axis=0)
        center = (ones @ y + self.far) / (ones.sum() + 1.0)
        weights = inverse @ (y - center)
        variance = ((y - center) @ weights + 1.0) / (len(y) + 1)
        return kernel, inverse, center, weights, variance

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; binary codes make its slope two matrix products."""
        known = np.isfinite(y)
        x, y = x[known], y[known]
        for _ in range(steps):
            kernel, inverse, _, weights, variance = self.explain(x, y)
            pull = np.outer(weights, weights) / variance - inverse
            shared = pull * kernel
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs[:-1])
            slope = -rates * np.bincount(self.owner, self.span * columns, minlength=len(rates))
            slope = np.append(slope, 0.5 * self.noise() * np.trace(pull))
            slope += self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs += np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def predict(self, x, y, points):
        known = np.isfinite(y)
        _, _, center, weights, variance = self.explain(x[known], y[known])
        return center + self.kernel(points, x[known]) @ weights, variance


class ImprovementPerSecond:
    """Buy the most expected gain per second: models of time, failure and duration price the children of the archive."""

    def __init__(self, batch=4, children=100, keep=128, growth=1.15, crossover_chance=0.3):
        self.batch = batch  # chosen together, whenever the machine has room
        self.children = children
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.crossover_chance = crossover_chance

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 0.5)[owner]
        # far away, kernels are e times slower, every second one fails, and takes a tenth of the budget
        self.models = [Kriging(owner, span, len(widths), far) for far in (0.0, 0.5, math.log(0.1))]
        self.due = 0
        self.asked = set()
        self.waiting = {}  # configuration -> when it was submitted
        self.configs, self.results = [], []  # results: cost, failed, log duration

        fresh = space.sample(evaluate.parallel)
        while True:
            while fresh:
                self.asked.update(fresh)
                self.waiting.update(dict.fromkeys(fresh, evaluate.spent))
                evaluate.submit(fresh)
                if evaluate.pending >= evaluate.parallel or not self.results:
                    break
                fresh = self.choose()
            if not evaluate.pending:
                return
            for config, cost in evaluate.wait():
                took = evaluate.spent - self.waiting.pop(config, evaluate.spent)
                # what had been measured before the run is free, which tells nothing of durations
                duration = math.log(took) if took > 0 else np.nan
                self.configs.append(config)
                self.results.append((cost, float(not np.isfinite(cost)), duration))
            fresh = self.choose() if evaluate.pending < evaluate.parallel else []

    def choose(self):
        """Up to a batch of new configurations: promising ones, else strangers, else none."""
        picks = []
        if any(not failed for _, failed, _ in self.results):
            picks = self.promising()
        for count in (32, 1024):
            if not picks:
                strangers = self.space.sample(count)
                picks = [config for config in strangers if config not in self.asked][: self.batch]
        return picks

    def promising(self):
        archive = np.array(self.configs)
        cost, failed, duration = np.array(self.results).T
        order = np.argsort(cost, kind="stable")
        ranked = archive[order[: int(np.isfinite(cost).sum())]]
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        gap = np.log(np.maximum(cost, 1e-12))
        gap = gap - gap.min()
        scale = max(float(np.quantile(gap[np.isfinite(gap)], 0.1)), 1e-3)
        target, best = np.log(gap + scale), math.log(scale)

        half = self.keep // 2
        rows = np.unique(np.append(order[:half], np.arange(len(cost))[-half:]))
        x = self.embed(archive[rows])
        lessons = [target[rows], failed[rows], duration[rows]]
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            for model, lesson in zip(self.models, lessons):
                model.learn(x, lesson)

        candidates = self.candidates(ranked)
        points = self.embed(candidates)
        (mean, variance), (failing, _), (length, _) = [
            model.predict(x, lesson, points) for model, lesson in zip(self.models, lessons)
        ]
        price = np.exp(length) / np.clip(1.0 - failing, 0.02, 1.0)

        # failures and whatever is on its way leave the mean alone, but nothing to find out nearby
        times = self.models[0]
        waiting = np.array(list(self.waiting), dtype=int).reshape(-1, len(self.cards))
        seen = np.vstack([x, self.embed(waiting)])
        root = np.linalg.cholesky(times.kernel(seen, seen) + times.noise() * np.eye(len(seen)))
        basis = solve_triangular(root, times.kernel(seen, points), lower=True)
        left = 1.0 - (basis**2).sum(axis=0)  # share of the variance

        configs = list(map(tuple, candidates.tolist()))
        free = np.array([config not in self.asked for config in configs])
        picks = []
        while free.any() and len(picks) < self.batch:
            spread = np.sqrt(variance * np.maximum(left, 1e-6))
            margin = (best - mean) / spread
            # expected improvement of a lognormal gap: differences that nobody feels are worth nothing
            gain = ndtr(margin) - np.exp(mean - best + 0.5 * spread**2) * ndtr(margin - spread)
            j = int(np.argmax(np.where(free, np.maximum(gain, 1e-9) / price, -1.0)))
            free[j] = False
            config = self.space.repair(configs[j])  # only now: it is slow
            if config in self.asked or config in picks:
                continue
            picks.append(config)
            covariance = times.kernel(points[j : j + 1], points)[0] - basis[:, j] @ basis
            row = covariance / math.sqrt(max(left[j], 0.0) + times.noise())
            basis, left = np.vstack([basis, row]), left - row**2
        return picks

    def embed(self, configs):
        return np.hstack([code[configs[:, i]] for i, code in enumerate(self.codes)])

    def ranks(self, count, total):
        """Ranks of parents on a logarithmic scale: often the best, yet anything that works has its chance."""
        return ((total + 1) ** (self.rng.random(count) ** 2)).astype(int) - 1

    def candidates(self, ranked):
        """All steps from the best and from another one, and children of the whole archive."""
        rng, d = self.rng, len(self.cards)
        other = int(self.ranks(1, len(ranked))[0])
        near = [n for k in sorted({0, other}) for n in self.space.neighbors(tuple(ranked[k].tolist()))]
        near = np.array(near, dtype=int).reshape(-1, d)

        shape = (self.children, d)
        mothers = ranked[self.ranks(self.children, len(ranked))]
        fathers = ranked[self.ranks(self.children, len(ranked))]
        crossed = rng.random((self.children, 1)) < self.crossover_chance
        child = np.where(crossed & (rng.random(shape) < 0.5), fathers, mothers)
        changes = (d / 2.0) ** rng.random((self.children, 1))  # mostly few, at most half of them
        mutated = ~crossed & (rng.random(shape) < changes / d)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return np.vstack([near, np.where(mutated, value, child)])
