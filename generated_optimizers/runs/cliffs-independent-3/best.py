import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 4.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log rate of each parameter, log noise

    def distance(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        return np.maximum((a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T, 0.0)

    def kernel(self, a, b):
        """A mixture of exponentials of all lengths: what helps here is believed to help far away, too."""
        return 1.0 / (1.0 + self.distance(a, b))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # many clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel**2
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def condition(self, x, y, blind):
        """The blind rows explain variance, but say nothing of the mean."""
        self.seen, n = np.vstack([x, blind]), len(x)
        self.root = np.linalg.cholesky(self.kernel(self.seen, self.seen) + self.noise() * np.eye(len(self.seen)))
        ones, values = solve_triangular(self.root[:n, :n], np.column_stack([np.ones(n), y]), lower=True).T
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


class ColoniesBeyondTheBorder:
    """Breed twice inside a heavy-tailed Gaussian process, from differences between better and worse results, and the
    longer the best stands still, the more plans go to colonies beyond the regions that are taken."""

    def __init__(self, pace=0.0125, brood=144, keep=128, resolution=0.002, penalty=2.5, roaming=0.5, notable=0.005):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children in each of the two generations of a plan
        self.keep = keep  # results that the models see: the best and the latest
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.roaming = roaming  # share of the plans for colonies when nothing moves at home
        self.notable = notable  # smaller improvements are no progress

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = 0  # number of results from which on the models learn again
        self.asked, self.sent = set(), {}  # all that was thought of; when what is on its way was submitted
        self.configs, self.costs, self.took = [], [], []
        self.trail, self.near, self.leader = [], [], None  # (moment, cost) of each best; neighbours of the last
        self.closed, self.colony, self.futile = [], math.inf, 0  # former colonies; the present one's best and delay

        queue = []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
                if cost < (self.trail[-1][1] if self.trail else math.inf):
                    self.trail.append((evaluate.spent, cost))
                    # what was planned around the former best is old news
                    self.leader, self.near, queue = config, [], []
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
        if self.trail:
            self.near = self.near or self.space.neighbors(self.leader)
            goal = self.trail[-1][1] * (1.0 + self.notable)
            since = next(moment for moment, cost in self.trail if cost <= goal)
            stillness = (spent - since) / (spent + 0.1)
            if self.rng.random() < self.roaming * stillness:
                picks = self.promising(count, away=True)
            picks = picks or self.promising(count, away=False)
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def promising(self, count, away):
        cost = np.array(self.costs)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        ranked = ranked[np.isfinite(levels)]
        if away:  # a colony competes with itself only, outside of what is taken
            ranked = ranked[:1024]
            taken = self.embed([self.configs[ranked[0]], *self.closed])
            reach = self.reach([self.configs[i] for i in ranked], taken)
            # where all is of one region, its fringe is where to start from
            border = min(1.0, float(np.quantile(reach, 0.8)))
            ranked = ranked[reach >= border]
            self.settle(self.configs[ranked[0]], cost[ranked[0]])
        margin_from = self.fit(cost, ranked, learning=not away)

        ideas = self.near + self.children(np.array([self.configs[i] for i in ranked[: self.keep]]))
        for last in (False, True):
            ideas = [config for config in dict.fromkeys(ideas) if config not in self.asked]
            if away and ideas:
                ideas = [config for config, far in zip(ideas, self.reach(ideas, taken)) if far >= border]
            if not ideas:
                return []
            points = self.embed(ideas)
            mean, basis = self.speed.predict(points)
            margin, price = margin_from - mean, np.exp(self.price.predict(points)[0])
            left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
            short = np.argsort(-gain(margin, np.sqrt(self.speed.variance * left)) / price)[: 2 * count + 32]
            ideas = [ideas[j] for j in short]
            if not last:  # the second generation goes where it takes several changes at once to get
                ideas += self.children(np.array(ideas[:16]))

        points, basis, margin, price = points[short], basis[:, short], margin[short], price[short]
        # what each pick will tell about the others makes those less worth
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        free, picks = np.ones(len(short), dtype=bool), []
        while free.any() and len(picks) < count:
            left = np.maximum(covariance.diagonal(), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            j = int(np.argmax(np.where(free, worth, -1.0)))
            free[j] = False
            config = self.space.repair(ideas[j])  # only now: it is slow
            if config not in self.asked and config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
            elif config in self.asked:
                self.asked.add(ideas[j])  # another spelling of what is known
        return picks

    def settle(self, config, cost):
        """Close a colony that has not moved for some plans: the next one has to go elsewhere."""
        if cost < self.colony / (1.0 + self.notable):
            self.colony, self.futile = cost, 0
        else:
            self.futile += 1
        if self.futile >= 4:
            self.closed.append(config)
            self.colony, self.futile = math.inf, 0

    def fit(self, cost, ranked, learning):
        """Fit the models to gaps to the best of the ranked and to durations; return the target of that best."""
        half, took = self.keep // 2, np.array(self.took)
        rows = np.union1d(ranked[:half], np.arange(len(cost))[-half:])  # the latest show what does nothing
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        base = cost[ranked[0]]
        scale = max(float(np.quantile(np.log(cost[ranked] / base), 0.1)), self.resolution)
        target = np.log(np.log(np.maximum(cost[rows][works] / base, 1.0)) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if learning and len(cost) >= self.due:
            self.due = int(1.25 * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)
        # failures and what is on its way leave the mean alone, but less to find out nearby
        self.speed.condition(x[works], target, np.vstack([x[~works], self.embed(list(self.sent))]))
        self.price.condition(x, charge, x[:0])
        return math.log(scale)

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def reach(self, configs, taken):
        """Distance to the nearest centre of what is taken, by what matters for speed."""
        return self.speed.distance(self.embed(configs), taken).min(axis=1)

    def children(self, parents):
        """Mixtures, continued differences, and parents with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        # what led from a worse one to a better one, done once more: steps grow while a trend lasts
        pair = np.sort(np.stack([ranks[1], rng.integers(len(parents), size=self.brood)]), axis=0)
        better, worse = parents[pair]
        further = np.clip(mothers + better - worse, 0, self.cards - 1)
        further = np.where(self.ordinal, further, np.where(better != worse, better, mothers))
        kind = rng.random((self.brood, 1))
        mixed = (kind < 0.45) & (rng.random(shape) < 0.5)
        child = np.where(mixed, np.where(kind < 0.2, fathers, further), mothers)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = (kind >= 0.45) & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
