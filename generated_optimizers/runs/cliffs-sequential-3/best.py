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

    def distance(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        return np.maximum((a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T, 0.0)

    def kernel(self, a, b):
        """Of heavy tail: what single changes brought still tells something of all of them together."""
        return 1.0 / (1.0 + self.distance(a, b))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # many clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; binary codes make its slope two matrix products."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel**2  # the slope of 1 / (1 + distance) is minus its square
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def fit(self, x, y, blind):
        """The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        self.seen, n = np.vstack([x, blind]), len(x)
        self.root = np.linalg.cholesky(
            self.kernel(self.seen, self.seen) + self.noise() * np.eye(len(self.seen))
        )
        ones, values = solve_triangular(
            self.root[:n, :n], np.column_stack([np.ones(n), y]), lower=True
        ).T
        self.center = (ones @ values + self.far) / (ones @ ones + 1.0)
        self.rest = values - self.center * ones
        self.variance = (self.rest @ self.rest + 1.0) / (n + 1)

    def predict(self, points):
        """Means, and a basis whose squares are the shares of the variance that are explained."""
        basis = solve_triangular(self.root, self.kernel(self.seen, points), lower=True)
        return self.center + self.rest @ basis[: len(self.rest)], basis


def gain(margin, spread):
    """Expected improvement of a lognormal gap: differences that nobody feels are worth nothing."""
    z = margin / spread
    return np.maximum(ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread), 1e-9)


class HomeAndAbroad:
    """Plan in instalments from heavy-tailed Gaussian processes of time and price, and let a share of the plans that
    grows with standstill improve the best result outside a circle of random radius around the best."""

    def __init__(
        self, pace=0.015, brood=100, keep=128, growth=1.25, resolution=0.002, penalty=2.5, abroad=0.1
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children in each of the two generations that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.abroad = abroad  # share of the plans that leave the best alone even while it improves

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        root = np.maximum(self.cards - 1, 1) ** 0.5
        self.range = np.where(self.ordinal, root, 1.0)  # the largest distance, at a rate of one
        span = np.where(self.ordinal, 1.0 / root, 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = self.since = 0  # results at the next lesson, and at the last improvement worth the name
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.near = []  # neighbours of the best

        best, mark, queue = math.inf, math.inf, []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            leader = None
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
                if cost < best:
                    best, leader = cost, config
            if leader is not None:  # what was planned around the former best is old news
                self.near, queue = space.neighbors(leader), []
                if best < (1.0 - self.resolution) * mark:
                    mark, self.since = best, len(self.costs)
            while evaluate.pending < evaluate.parallel:
                queue = queue or self.plan(evaluate)
                if not queue:
                    break
                self.send(evaluate, [queue.pop(0)])

    def send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def plan(self, evaluate):
        """New configurations for a share of the budget, early on for less; none when nothing is left to visit."""
        n, picks = len(self.costs), []
        count = max(4, int(n * min(0.25, self.pace / (evaluate.spent + 1e-9))))
        if min(self.costs) < math.inf:
            # what was on its way at the last improvement could not build on it: no sign of a standstill
            standstill = max(0, n - self.since - evaluate.parallel) / n
            picks = self.promising(count, min(0.5, self.abroad + standstill))
        for number in (32, 1024):
            if not picks:
                fresh = [config for config in self.space.sample(number) if config not in self.asked]
                picks = fresh[:count]
        return picks

    def promising(self, count, abroad):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        ranked = ranked[np.isfinite(levels)][:1024]
        home, radius = self.embed([self.configs[ranked[0]]]), 0.0
        if self.rng.random() < abroad:
            # a region that need not beat the best at once has time to develop; always another circle, so that no
            # region is final: up to half as far as random configurations are, yet with something known outside
            away = self.speed.distance(self.embed([self.configs[i] for i in ranked]), home)[:, 0]
            radius = min(self.rng.random() * self.reach().sum() / 6.0, 0.9 * away.max())
            ranked = ranked[away >= radius]
        reference = cost[ranked[0]]
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        scale = max(float(np.quantile(np.log(cost[ranked] / reference), 0.1)), self.resolution)
        ranked = ranked[: self.keep]

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.union1d(ranked[:half], np.arange(len(cost))[-half:])
        x = self.embed([self.configs[i] for i in rows])
        outside = self.speed.distance(x, home)[:, 0] >= radius  # else all that is near home would look good
        rows, x = rows[outside], x[outside]
        works = np.isfinite(cost[rows])
        target = np.log(np.log(np.maximum(cost[rows][works] / reference, 1.0)) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if radius == 0.0 and len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)
        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        self.speed.fit(x[works], target, np.vstack([x[~works], self.embed(list(self.sent))]))
        self.price.fit(x, charge, x[:0])

        ideas, parents = self.near, np.array([self.configs[i] for i in ranked])
        for _ in range(2):  # the second generation descends from what the models think best of the first
            ideas = dict.fromkeys(ideas + self.children(parents))
            ideas = [config for config in ideas if config not in self.asked]
            if not ideas:
                return []
            points = self.embed(ideas)
            mean, basis = self.speed.predict(points)
            margin, price = math.log(scale) - mean, np.exp(self.price.predict(points)[0])
            left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            worth[self.speed.distance(points, home)[:, 0] < radius] = -1.0
            # only a short list is worth the bookkeeping of what each pick tells about the others
            short = np.argsort(-worth)[: 2 * count + 32]
            short = short[worth[short] > 0.0]
            if not len(short):
                return []
            parents = np.array([ideas[i] for i in short])

        points, basis, margin, price = points[short], basis[:, short], margin[short], price[short]
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        free, picks = np.ones(len(short), dtype=bool), []
        while free.any() and len(picks) < count:
            left = np.maximum(covariance.diagonal(), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            j = int(np.argmax(np.where(free, worth, -1.0)))
            free[j] = False
            config = self.space.repair(ideas[short[j]])  # only now: it is slow
            if config not in self.asked and config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def reach(self):
        """How far each parameter can move a configuration, in the distance learned so far."""
        return np.exp(self.speed.logs[:-1]) * self.range

    def children(self, parents):
        """Mixtures of two parents, and parents with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        crossed = rng.random((self.brood, 1)) < 0.3
        child = np.where(crossed & (rng.random(shape) < 0.5), fathers, mothers)
        # half of the children change any parameters, half rather those that matter: a race decides which
        haste = np.where(rng.random((self.brood, 1)) < 0.5, self.reach(), 1.0)
        places = (rng.exponential(size=shape) / haste).argsort(axis=1).argsort(axis=1)
        mutated = ~crossed & (places < np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1))))
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
