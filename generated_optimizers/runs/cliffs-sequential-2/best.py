import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, share, far):
        # of each column: its parameter, its share of the distance
        self.owner, self.span = owner, span
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(3.0 * share, 0.03))
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

    def fit(self, x, y, blind):
        """The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        self.seen, n = np.vstack([x, blind]), len(x)
        kernel = self.kernel(self.seen, self.seen)
        self.root = np.linalg.cholesky(kernel + self.noise() * np.eye(len(kernel)))
        ones, values = solve_triangular(
            self.root[:n, :n], np.column_stack([np.ones(n), y]), lower=True
        ).T
        self.center = (ones @ values + self.far) / (ones @ ones + 1.0)
        self.rest = values - self.center * ones
        self.variance = (self.rest @ self.rest + 1.0) / (n + 1)

    def predict(self, points):
        """Means at the points, and a basis whose squares are the shares of the variance that are explained."""
        basis = solve_triangular(self.root, self.kernel(self.seen, points), lower=True)
        return self.center + self.rest @ basis[: len(self.rest)], basis


def gain(margin, spread):
    """Expected improvement of a lognormal gap: differences that nobody feels are worth nothing."""
    z = margin / spread
    return np.maximum(ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread), 1e-9)


class BreedingWhereItMatters:
    """Buy expected improvement per second in instalments among ideas bred for three generations within the models,
    changing most often the parameters that the model has learned to matter and going on beyond the better of two
    parents, away from the worse."""

    def __init__(
        self,
        pace=0.0125,
        brood=84,
        generations=3,
        keep=160,
        growth=1.25,
        resolution=0.002,
        penalty=2.5,
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children in each generation
        self.generations = generations  # that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards = np.array(space.cardinalities)
        self.ordinal = np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        widths = self.cards - self.ordinal
        self.owner = np.repeat(np.arange(len(widths)), widths)
        self.level = np.concatenate([np.arange(width) for width in widths])
        # a parameter with more values can do more, until the data say otherwise
        root = np.sqrt(np.maximum(self.cards - 1, 1))
        span = np.where(self.ordinal, 1.0 / root, 0.5)[self.owner]
        self.reach = np.where(self.ordinal, root, 1.0)  # distance from end to end, at rate 1
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (
            Kriging(self.owner, span, root / root.sum(), far) for far in (0.0, 2.0)
        )
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took, self.when = [], [], [], []
        self.near = []  # neighbours of the best

        best, queue = math.inf, []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            leader, now = None, evaluate.spent
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(now - self.sent.pop(config, now))
                self.when.append(now)
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
        picks = self.promising(count, spent) if min(self.costs) < math.inf else []
        for number in (32, 1024):
            if not picks:
                picks = [
                    config for config in self.space.sample(number) if config not in self.asked
                ][:count]
        return picks

    def promising(self, count, spent):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        working = int(np.isfinite(levels).sum())
        ranked = ranked[:working][: self.keep]

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.union1d(ranked[:half], np.arange(len(cost))[-half:])
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away;
        # but if the leader stands still, some plans blur the last per cents, which brings other regions within
        # reach; the root makes standing still count sooner while much of the budget is left
        since = self.when[int(np.argmax(cost <= levels[0] * (1.0 + self.resolution)))]
        still = min((spent - since) / math.sqrt(spent + 1e-9), 1.0)
        blur = 0.1 + 0.9 * still * self.rng.random()
        gaps = np.log(levels[:working] / levels[0])
        scale = max(float(np.quantile(gaps, blur)), self.resolution)
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
        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        self.speed.fit(x[works], target, np.vstack([x[~works], self.embed(list(self.sent))]))
        self.price.fit(x, charge, x[:0])

        ideas = self.near + self.children([self.configs[i] for i in ranked], 0.3)
        for generation in range(1, self.generations + 1):
            ideas = [config for config in dict.fromkeys(ideas) if config not in self.asked]
            if not ideas:
                return []
            points = self.embed(ideas)
            mean, basis = self.speed.predict(points)
            margin, price = math.log(scale) - mean, np.exp(self.price.predict(points)[0])
            left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            # only a short list is worth breeding from, and the bookkeeping of what picks tell about each other
            short = np.argsort(-worth)[: 2 * count + 32]
            if generation < self.generations:  # what looks good apart is tried together
                ideas = [ideas[i] for i in short]
                ideas += self.children(ideas, 0.6)
        return self.pick(count, [ideas[i] for i in short], points[short], basis[:, short],
                         margin[short], price[short])

    def pick(self, count, ideas, points, basis, margin, price):
        """The best improvement per second, one after another, each making those like it less of a surprise."""
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        free, picks = np.ones(len(ideas), dtype=bool), []
        while free.any() and len(picks) < count:
            left = np.maximum(covariance.diagonal(), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            j = int(np.argmax(np.where(free, worth, -1.0)))
            free[j] = False
            config = self.space.repair(ideas[j])  # only now: it is slow
            if config in self.asked:
                self.asked.add(ideas[j])  # another spelling of it, not to be considered again
            elif config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (
                    left[j] + self.speed.noise()
                )
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))[:, self.owner]
        steps = self.ordinal[self.owner]
        return np.where(steps, table > self.level, table == self.level).astype(float)

    def children(self, parents, crossing):
        """Mixtures of two parents, and parents with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = np.array(parents)[ranks]
        crossed = rng.random((self.brood, 1)) < crossing
        # some go on where the way from the worse to the better parent leads: the best may lie many steps ahead
        ahead = np.where(
            (ranks[0] < ranks[1])[:, None], 2 * mothers - fathers, 2 * fathers - mothers
        )
        beyond = self.ordinal & (rng.random((self.brood, 1)) < 0.3)
        other = np.where(beyond, np.clip(ahead, 0, self.cards - 1), fathers)
        child = np.where(crossed & (rng.random(shape) < 0.5), other, mothers)
        # half of the changes go where the model has learned that they matter, half anywhere
        matters = self.reach * np.exp(self.speed.logs[:-1])
        race = rng.exponential(size=shape) / (matters / matters.sum() + 1.0 / d)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~crossed & (race.argsort(axis=1).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
