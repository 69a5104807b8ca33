import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters. Its kernel falls as
    1 / (1 + distance), a mixture of all length scales: trends reach far, and details are seen nearby."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return 1.0 / (1.0 + np.maximum(distance, 0.0))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; binary codes make its slope two matrix products."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel**2  # the square is minus the kernel's derivative by the distance
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def fit(self, x, y, blind):
        """The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        self.seen, n = np.vstack([x, blind]), len(x)
        self.root = np.linalg.cholesky(self.kernel(self.seen, self.seen) + self.noise() * np.eye(len(self.seen)))
        ones, values = solve_triangular(self.root[:n, :n], np.column_stack([np.ones(n), y]), lower=True).T
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


class FrontsElsewhere:
    """Work on several fronts of one heavy-tailed Gaussian process: the leader's region and, the longer it stands
    still, the best of what is unlike the leader, judged by its own record; ideas are bred twice, the second time from
    those of the most expected improvement per second."""

    def __init__(
        self,
        pace=0.0125,
        brood=112,
        keep=128,
        growth=1.3,
        resolution=0.002,
        penalty=2.5,
        patience=0.1,
        wander=0.4,
        alike=0.6,
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children in each of the two generations of a plan
        self.keep = keep  # results that the models see: half the best, half the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.patience = patience  # share of the budget without progress after which to wander most
        self.wander = wander  # the largest probability of leaving a front for the next
        self.alike = alike  # similarity from which on two configurations are of one region

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
        self.due, self.near = 0, {}  # when to learn again; neighbours of the heads of fronts
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        best, mark, queue, self.moved = math.inf, math.inf, [], 0.0
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
                best = min(best, cost)
            if best < mark * (1.0 - self.resolution):  # progress: older plans are old news
                mark, queue, self.moved = best, [], evaluate.spent
            while evaluate.pending < evaluate.parallel:
                queue = queue or self.plan(evaluate.spent)
                if not queue:
                    break
                self.send(evaluate, [queue.pop(0)])

    def send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def fresh(self, ideas):
        return [config for config in dict.fromkeys(ideas) if config not in self.asked]

    def plan(self, spent):
        """New configurations for a share of the budget, early on for less; none when nothing is left to visit."""
        count = max(4, int(len(self.costs) * min(0.25, self.pace / (spent + 1e-9))))
        # a plan is for one front: the leader's while there is progress, then now and then one further away
        still = min(1.0, (spent - self.moved) / self.patience)
        depth = int(self.rng.geometric(1.0 - self.wander * still)) - 1
        picks = []
        if min(self.costs) < math.inf:
            picks = self.promising(count, depth) or self.promising(count, 0)
        for number in (32, 1024):
            picks = picks or self.fresh(self.space.sample(number))[:count]
        return picks

    def promising(self, count, depth):
        """What promises most per second to beat the record of those that are unlike the heads of ``depth`` fronts."""
        cost, took, half = np.array(self.costs), np.array(self.took), self.keep // 2
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        working = int(np.isfinite(levels).sum())
        ranked = ranked[:working][: 3 * self.keep]
        places, heads = self.embed([self.configs[i] for i in ranked]), []
        apart = np.ones(len(ranked), dtype=bool)
        for _ in range(depth):
            if apart.any():
                heads.append(int(np.argmax(apart)))  # the best that is left
                apart &= self.speed.kernel(places, places[heads[-1:]])[:, 0] < self.alike
        front, record = ranked, levels[working - 1]  # anything that works would found a new front
        if apart.any():
            front = ranked[apart]
            record = cost[front[0]]

        # the best of all and of the front show what is good; the latest, clones included, what does nothing
        rows = np.unique(np.concatenate([ranked[:half], front[:half], np.arange(len(cost))[-half:]]))
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away
        scale = max(math.log(levels[int(0.5 * working**0.5)] / levels[0]), self.resolution)
        target = np.log(np.log(cost[rows][works] / levels[0]) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)
        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        self.speed.fit(x[works], target, np.vstack([x[~works], self.embed(list(self.sent))]))
        self.price.fit(x, charge, x[:0])

        lead = self.configs[front[0]]
        if lead not in self.near:
            self.near[lead] = list(self.space.neighbors(lead))
        ideas = self.fresh(self.near[lead] + self.children([self.configs[i] for i in front[: self.keep]]))
        aim = math.log(math.log(record / levels[0]) + scale)
        for breed in (True, False):
            if not ideas:
                return []
            points = self.embed(ideas)
            mean, basis = self.speed.predict(points)
            margin, price = aim - mean, np.exp(self.price.predict(points)[0])
            left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
            worth = gain(margin, np.sqrt(self.speed.variance * left)) / price
            if heads:
                worth = worth * (self.speed.kernel(points, places[heads]).max(axis=1) < self.alike)
            short = np.argsort(-worth)[: 2 * count + 32]
            short = short[worth[short] > 0.0]
            ideas = [ideas[j] for j in short]
            if breed and ideas:  # several good changes at once are rarely drawn, but easily bred from good ideas
                ideas = self.fresh(ideas + self.children(ideas))

        points, basis, margin, price = points[short], basis[:, short], margin[short], price[short]
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
                # what is picked leaves less to find out from its likes
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Parents with the difference of two others, or with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((3, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers, origins = np.array(parents)[ranks]
        # what leads from one to another may lead further; from the mother itself, it is a plain crossover
        origins = np.where(rng.random((self.brood, 1)) < 0.5, mothers, origins)
        further = np.clip(mothers + fathers - origins, 0, self.cards - 1)
        moved = np.where(self.ordinal, further, np.where(fathers != origins, fathers, mothers))
        crossed = rng.random((self.brood, 1)) < 0.3
        child = np.where(crossed & (rng.random(shape) < 0.5), moved, mothers)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~crossed & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
