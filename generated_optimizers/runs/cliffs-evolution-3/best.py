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


class ValueInExile:
    """Buy expected improvement per second, but the more the best stands still, the more plans go into exile: they
    must keep one value that the leader lacks, and need only beat the best that has this value. So what works only
    together with other changes gets them before it is compared with the leader."""

    def __init__(self, pace=0.0125, brood=176, keep=128, growth=1.25, resolution=0.002, penalty=2.5, roam=0.1):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.roam = roam  # share of the plans in exile while all goes well

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        d, widths = len(self.cards), [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(d), widths)
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, d, far) for far in (0.0, 2.0))
        self.due, self.scale = 0, 1.0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.leader, self.near = None, []  # the best and its neighbours
        self.mark, self.since = math.inf, 0.0  # the last progress worth the name, and when it was made
        # of each value of each parameter: the best time with it, and how often it was tried
        self.record = np.full((d, int(self.cards.max())), np.inf)
        self.visits = np.ones(self.record.shape)
        self.exile, self.hope = None, math.inf  # parameter and value to keep; gap when it was last planned for

        best, queue, columns = math.inf, [], np.arange(d)
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            former = best
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
                place = columns, np.array(config)
                self.visits[place] += 1
                self.record[place] = np.minimum(self.record[place], cost)
                if cost < best:
                    best, self.leader = cost, config
            if best < former:  # what was planned around the former best is old news
                self.near, queue = space.neighbors(self.leader), []
                if best < self.mark * 0.995:
                    self.mark, self.since = best, evaluate.spent
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
        count, picks = max(4, int(len(self.costs) * min(0.25, self.pace / (spent + 1e-9)))), []
        if self.leader is not None:
            # a longer standstill makes home less promising; less time left makes discoveries worth less
            stall = (spent - self.since) / (spent + 0.1)
            if self.rng.random() < (self.roam + stall) * (1.0 - spent):
                picks = self.promising(count, self.banish())
            picks = picks or self.promising(count)
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def banish(self):
        """The parameter and value to keep in exile: the last ones as long as each plan closes a fifth of their gap,
        then others: of a parameter that matters, near the best, and rarely tried."""
        gap = np.log(self.record / min(self.costs))
        if self.exile is None or self.leader[self.exile[0]] == self.exile[1] or gap[self.exile] > 0.8 * self.hope:
            weight = np.exp(self.speed.logs[:-1])[:, None] / ((gap + self.scale) ** 2 * self.visits)
            weight[np.arange(len(weight)), np.array(self.leader)] = 0.0
            total = weight.sum()
            if not total > 0.0:
                return None
            drawn = int(self.rng.choice(weight.size, p=weight.ravel() / total))
            self.exile = divmod(drawn, weight.shape[1])
        self.hope = gap[self.exile]
        return self.exile

    def promising(self, count, exile=None):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        working = int(np.isfinite(levels).sum())
        levels, ranked = levels[:working], ranked[:working]
        members = ranked
        if exile:
            members = np.array([i for i in ranked if self.configs[i][exile[0]] == exile[1]], dtype=int)
            if not len(members):  # only clones have this value, so it does nothing
                return []
        brood = self.children(np.array([self.configs[i] for i in members[: self.keep]]))
        if exile:
            brood[:, exile[0]] = exile[1]
        ideas = dict.fromkeys(([] if exile else self.near) + list(map(tuple, brood.tolist())))
        ideas = [config for config in ideas if config not in self.asked]
        if not ideas:
            return []

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.unique(np.concatenate([ranked[:half], members[: half // 2], np.arange(len(cost))[-half:]]))
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        self.scale = max(float(np.quantile(np.log(levels / levels[0]), 0.1)), self.resolution)
        target = np.log(np.log(cost[rows][works] / levels[0]) + self.scale)
        bar = math.log(math.log(cost[members[0]] / levels[0]) + self.scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)

        points = self.embed(ideas)
        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        blind = np.vstack([x[~works], self.embed(list(self.sent))])
        mean, variance, basis = self.speed.predict(x[works], target, blind, points)
        price = np.exp(self.price.predict(x, charge, x[:0], points)[0])
        margin = bar - mean
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
            if exile and config[exile[0]] != exile[1]:  # normalised back home
                continue
            if config not in self.asked and config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Mixtures of two parents, strides from the worse to beyond the better, and parents with mostly few
        parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        better, worse = parents[np.sort(ranks, axis=0)]
        kind, coin = rng.random((self.brood, 1)), rng.random(shape) < 0.5
        crossed, strode = kind < 0.3, kind > 0.85
        child = np.where(crossed & coin, fathers, mothers)
        # what led from the worse to the better may lead further, in several parameters at once
        stride = np.where(self.ordinal & coin, 2 * better - worse, better)
        child = np.where(strode, np.clip(stride, 0, self.cards - 1), child)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~crossed & ~strode & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return np.where(mutated, value, child)
