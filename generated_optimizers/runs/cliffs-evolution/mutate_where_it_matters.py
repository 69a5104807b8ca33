import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = (
            owner,
            span,
        )  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log decay rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return np.exp(-np.maximum(distance, 0.0))

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
            shared = pull * kernel
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(
                self.owner, self.span * columns, minlength=len(rates) - 1
            )
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def predict(self, x, y, blind, points):
        """Means at the points, prior variance, and a basis whose squares are the shares of it that are explained.
        The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        seen, n = np.vstack([x, blind]), len(x)
        root = np.linalg.cholesky(self.kernel(seen, seen) + self.noise() * np.eye(len(seen)))
        basis = solve_triangular(root, self.kernel(seen, points), lower=True)
        ones, values = solve_triangular(
            root[:n, :n], np.column_stack([np.ones(n), y]), lower=True
        ).T
        center = (ones @ values + self.far) / (ones @ ones + 1.0)
        rest = values - center * ones
        return center + rest @ basis[:n], (rest @ rest + 1.0) / (n + 1), basis


def gain(margin, spread):
    """Expected improvement of a lognormal gap: differences that nobody feels are worth nothing."""
    z = margin / spread
    return np.maximum(ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread), 1e-9)


class ImprovementByInstalments:
    """Buy expected improvement per second in instalments: a fixed number of plans a run, each for a share of the
    budget, from small models of time and price over children of the clone-free archive, which are changed mostly
    where the model of time has learned that it matters."""

    def __init__(
        self, pace=0.0125, brood=160, keep=128, growth=1.25, resolution=0.002, penalty=2.5
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = (
            np.array(space.cardinalities),
            np.array(space.ordinal, dtype=bool),
        )
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [
            np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)
        ]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.near = []  # neighbours of the best

        best, queue = math.inf, []
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
            while evaluate.pending < evaluate.parallel:
                queue = queue or self.plan(evaluate.spent)
                if not queue:
                    break
                self.send(evaluate, [queue.pop(0)])

    def send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def plan(self, spent):
        """New configurations for a share of the budget, early on for less; none when nothing is left to visit."""
        count = max(4, int(len(self.costs) * min(0.25, self.pace / (spent + 1e-9))))
        picks = self.promising(count) if min(self.costs) < math.inf else []
        for number in (32, 1024):
            if not picks:
                picks = [
                    config for config in self.space.sample(number) if config not in self.asked
                ][:count]
        return picks

    def promising(self, count):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        working = int(np.isfinite(levels).sum())
        ranked = ranked[:working][: self.keep]
        parents = np.array([self.configs[i] for i in ranked])
        ideas = dict.fromkeys(self.near + self.children(parents))
        ideas = [config for config in ideas if config not in self.asked]
        if not ideas:
            return []

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.union1d(ranked[:half], np.arange(len(cost))[-half:])
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        scale = max(float(np.quantile(np.log(levels[:working] / levels[0]), 0.1)), self.resolution)
        target = np.log(np.log(cost[rows][works] / levels[0]) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = (
            np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows]
            + self.penalty * ~works
        )
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)

        points = self.embed(ideas)
        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        blind = np.vstack([x[~works], self.embed(list(self.sent))])
        mean, variance, basis = self.speed.predict(x[works], target, blind, points)
        price = np.exp(self.price.predict(x, charge, x[:0], points)[0])
        margin = math.log(scale) - mean
        left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
        # only a short list is worth the bookkeeping of what each pick tells about the others
        short = np.argsort(-gain(margin, np.sqrt(variance * left)) / price)[: 2 * count + 32]
        points, basis, margin, price = points[short], basis[:, short], margin[short], price[short]
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        free, picks = np.ones(len(short), dtype=bool), []
        while free.any() and len(picks) < count:
            left = np.maximum(covariance.diagonal(), 1e-6)
            j = int(np.argmax(np.where(free, gain(margin, np.sqrt(variance * left)) / price, -1.0)))
            free[j] = False
            config = self.space.repair(ideas[short[j]])  # only now: it is slow
            if config not in self.asked and config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (
                    left[j] + self.speed.noise()
                )
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Mixtures of two parents, and parents with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        crossed = rng.random((self.brood, 1)) < 0.3
        child = np.where(crossed & (rng.random(shape) < 0.5), fathers, mothers)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        # the learned rates tell what matters; each child trusts them from not at all to fully: many change several
        # decisive parameters at once, yet none is left out for good (adding Gumbel noise draws without replacement)
        favour = rng.random((self.brood, 1)) * self.speed.logs[:-1] + rng.gumbel(size=shape)
        mutated = ~crossed & ((-favour).argsort(axis=1).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
