import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


def ladder(count, trend):
    """Codes of ordered values with squared distances steps ** trend; above 1, what falls is expected to fall on."""
    rung = np.arange(1.0, count)
    gram = rung[:, None] ** trend + rung**trend - np.abs(rung[:, None] - rung) ** trend
    return np.vstack([np.zeros(len(rung)), np.linalg.cholesky(0.5 * gram)])


class Kriging:
    """Gaussian process on codes of the values that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log decay rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a**2 @ weight)[:, None] + b**2 @ weight - 2.0 * (a * weight) @ b.T
        return np.exp(-np.maximum(distance, 0.0))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # many clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; squared distances make its slope two matrix products."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel
            columns = shared.sum(axis=0) @ x**2 - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def predict(self, x, y, blind, points):
        """Means at the points, prior variance, and a basis whose squares are the shares of it that are explained.
        The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        seen, n = np.vstack([x, blind]), len(x)
        root = np.linalg.cholesky(self.kernel(seen, seen) + self.noise() * np.eye(len(seen)))
        basis = solve_triangular(root, self.kernel(seen, points), lower=True)
        ones, values = solve_triangular(root[:n, :n], np.column_stack([np.ones(n), y]), lower=True).T
        center = (ones @ values + self.far) / (ones @ ones + 1.0)
        rest = values - center * ones
        return center + rest @ basis[:n], (rest @ rest + 1.0) / (n + 1), basis


def gain(margin, spread):
    """Expected improvement of a lognormal gap: differences that nobody feels are worth nothing."""
    z = margin / spread
    return np.maximum(ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread), 1e-9)


class TrendingPeaks:
    """Let a Gaussian process follow trends along ordered values, so that a search far from the best strides on, and
    let unfinished work warn of its region. Plans are few, and buy expected improvement per second; hope, the latest
    progress, sets how large an improvement they look for. Peaks at which the search stands still are fenced off in
    the metric of what matters, and every other plan improves on the best outside of the fences."""

    def __init__(
        self, pace=0.0125, brood=192, keep=128, growth=1.25, resolution=0.002, penalty=2.5, patience=0.07, fence=0.5,
        trend=1.5,
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.patience = patience  # share of the budget without progress that makes a standstill
        self.fence = fence  # similarity to a peak from which on a configuration is of its region
        self.trend = trend  # 1: the next step is as likely up as down; towards 2: it goes on as the last one

    def __call__(self, evaluate, space, rng):
        self.space, self.rng, self.parallel = space, rng, evaluate.parallel
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        self.codes = [ladder(c, self.trend) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        # the root of all steps that there are is as far as another category
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** (-0.5 * self.trend), 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.near = []  # neighbours of the best
        self.peaks, self.abroad = [], False  # centres of the fences; whether this plan is for outside
        self.record, self.since, self.counted = math.inf, 0.0, 0  # best of the outermost front, and from when

        best, home, queue = math.inf, math.inf, []
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
                if best < home * (1.0 - self.resolution):  # progress: this region deserves the whole machine
                    home, self.peaks, self.record = best, [], math.inf
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
        picks = []
        if min(self.costs) < math.inf:
            self.abroad = bool(self.peaks) and not self.abroad  # by turns: what we have is not given up
            picks = self.promising(count, spent)
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def outside(self, points):
        """Which of the points differ from all peaks in what matters."""
        return self.speed.kernel(points, self.embed(self.peaks)).max(axis=1) < self.fence

    def watch(self, leader, spent):
        """Fence off the leader of the outermost front if that front stands still."""
        if self.costs[leader] < self.record * (1.0 - self.resolution):
            self.record, self.since, self.counted = self.costs[leader], spent, len(self.costs)
        elif spent - self.since > self.patience and len(self.costs) - self.counted > 3 * self.parallel:
            self.peaks.append(self.configs[leader])
            self.record, self.since, self.counted = math.inf, spent, len(self.costs)

    def promising(self, count, spent):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        levels = levels[np.isfinite(levels)]
        ranked = ranked[: len(levels)][: 4 * self.keep]
        if self.abroad:
            out = self.outside(self.embed([self.configs[i] for i in ranked]))
            ranked = ranked[out] if out.any() else ranked  # all of one region: leave it by many changes at once
        ranked = ranked[: self.keep]
        if self.abroad or not self.peaks:
            self.watch(ranked[0], spent)
        ideas = dict.fromkeys(self.near + self.children(np.array([self.configs[i] for i in ranked])))
        ideas = [config for config in ideas if config not in self.asked]
        points = self.embed(ideas)
        if self.abroad:
            out = self.outside(points)
            ideas, points = [ideas[i] for i in np.flatnonzero(out)], points[out]
        if not ideas:
            return []

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.union1d(ranked[:half], np.arange(len(cost))[-half:])
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # Logs of the gap to the best: sharp among the last per cents once progress is small. But whoever has just
        # gained a factor, or has seen little, may hope for as much again, and must not polish where he stands.
        record = np.minimum.accumulate(cost)
        hope = 0.5 * math.log(record[int(0.8 * len(cost))] / record[-1]) + 1.0 / len(cost)
        scale = max(float(np.quantile(np.log(levels / levels[0]), 0.1)), self.resolution, min(hope, 1.0))
        target = np.log(np.log(cost[rows][works] / levels[0]) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        # whatever is late takes at least as long as it has: who waits for its result fills all compilers with its like
        late = {config: (spent - start) / typical for config, start in self.sent.items() if spent - start > typical}
        paid, charge = np.vstack([x, self.embed(list(late))]), np.append(charge, np.log(list(late.values())))
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(paid, charge)

        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        blind = np.vstack([x[~works], self.embed(list(self.sent))])
        mean, variance, basis = self.speed.predict(x[works], target, blind, points)
        price = np.exp(self.price.predict(paid, charge, x[:0], points)[0])
        # what is to be beaten is the best of this front: at home the best of all, abroad the best out there
        margin = math.log(math.log(cost[ranked[0]] / levels[0]) + scale) - mean
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
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Mixtures of two parents, steps beyond the better of two, and parents with mostly few parameters changed;
        not normalised."""
        rng, shape = self.rng, (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        kind, half = rng.random((self.brood, 1)), rng.random(shape) < 0.5
        child = np.where((kind < 0.3) & half, fathers, mothers)
        # what led from the worse to the better may lead on: such strides double until they fail
        lead, trail = parents[np.sort(ranks, axis=0)]
        stride = np.where(self.ordinal & half, np.clip(2 * lead - trail, 0, self.cards - 1), lead)
        child = np.where(kind > 0.85, stride, child)
        # parameters that matter are changed more often, those with one value never
        appeal = np.where(self.cards > 1, 0.5 * self.speed.logs[:-1], -np.inf) + rng.gumbel(size=shape)
        changes = np.floor((1.0 + shape[1] / 2.0) ** rng.random((self.brood, 1)))
        mutated = (kind >= 0.3) & (kind <= 0.85) & ((-appeal).argsort(axis=1).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
