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
        """A long tail: what was learned on one hill is not forgotten altogether on the next."""
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return (1.0 + 0.5 * np.maximum(distance, 0.0)) ** -2.0

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
            shared = pull * kernel * np.sqrt(kernel)  # the kernel's own slope along the distance
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


class LeaderAndRival:
    """Climb two hills with one model: the longer the leader stands still, the more of each plan goes to a rival, the
    best result unlike the leader and all rivals that gave up, which is judged by progress over its own top and must
    halve its gap to the leader in every trial or make room for the next."""

    def __init__(
        self, pace=0.016, brood=160, keep=128, growth=1.25, resolution=0.001, penalty=2.5, notable=0.01, share=0.5,
        trial=24
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children of a hill that a plan considers
        self.keep = keep  # results that the models see: the best and the latest
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time that hardly count, in the end
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.notable = notable  # with smaller improvements, the search stands still
        self.share = share  # of a plan that is the rival's when nothing has moved for long
        self.trial = trial  # results in which a rival has to halve its gap

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
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.records = []  # when the best improved, and to what
        self.around, self.near = None, []  # the leader, and its neighbours
        # the rival: its results, what was asked on its behalf; and the tops of those that gave up
        self.members, self.envoys, self.closed = [], set(), []

        best, queue = math.inf, []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            former = best
            for config, cost in done:
                if config in self.envoys:
                    self.members.append(len(self.costs))
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
                if cost < best:
                    best = cost
                    self.records.append((evaluate.spent, best))
            if best < former * (1.0 - self.notable):  # what was planned around the former best is old news
                queue = []
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
        picks = self.promising(count, spent) if self.records else []
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def stillness(self, spent):
        """Share of the run so far in which nothing notable has happened; the first seconds excuse much."""
        level = self.records[-1][1] * (1.0 + self.notable)
        since = next(when for when, cost in self.records if cost <= level)
        return (spent - since) / (spent + 0.1)

    def rival(self, cost, ranked):
        """Results of the rival, the best first; one that won, or that does not keep up, is followed by the next."""
        if self.members:
            levels, first = np.unique(cost[self.members], return_index=True)
            hill = np.array(self.members)[first[np.isfinite(levels)]]
            gap = math.log(levels[0] / cost[ranked[0]])
            if len(self.members) >= self.exam and gap <= 0.5 * self.handicap:
                self.exam, self.handicap = len(self.members) + self.trial, gap
            if gap > 0.0:
                if len(self.members) < self.exam:
                    return hill
                self.closed.append(self.configs[hill[0]])
        others = ranked[1 :: len(ranked) // 512 + 1]
        if len(others) == 0:
            return others
        tops = self.embed([self.configs[ranked[0]], *self.closed])
        alike = self.speed.kernel(self.embed([self.configs[i] for i in others]), tops).max(axis=1)
        seed = int(others[np.argmax(alike <= np.quantile(alike, 0.25))])  # the fastest of the most unlike
        self.members, self.envoys = [seed], set()
        self.exam, self.handicap = 1 + self.trial, math.log(cost[seed] / cost[ranked[0]])
        return np.array([seed])

    def promising(self, count, spent):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        levels, ranked = levels[np.isfinite(levels)], ranked[np.isfinite(levels)]
        leader = self.configs[ranked[0]]
        if leader != self.around:
            self.around, self.near = leader, self.space.neighbors(leader)
        scouts = int(self.rng.binomial(count, self.share * self.stillness(spent)))
        hill = self.rival(cost, ranked) if scouts else ranked[:0]

        parents = np.array([self.configs[i] for i in ranked[: self.keep]])
        ideas = dict.fromkeys(self.near + self.children(parents, parents), False)  # True: the rival's
        if len(hill):
            climbers = np.array([self.configs[i] for i in hill[: self.keep]])
            ideas = {**dict.fromkeys(self.children(climbers, parents), True), **ideas}
        ideas = {config: rivals for config, rivals in ideas.items() if config not in self.asked}
        if not ideas:
            return []
        rivals, ideas = np.array(list(ideas.values())), list(ideas)

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.unique(np.concatenate([ranked[:half], hill[: self.trial], np.arange(len(cost))[-half:]]))
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away. At first only
        # what is much faster counts, or else idle parameters around a slow default would seem to matter
        finest = self.resolution / (spent + 0.03)
        scale = max(float(np.quantile(np.log(levels / levels[0]), 0.1)), finest)
        target = np.log(np.log(cost[rows][works] / levels[0]) + scale)
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
        margin = math.log(scale) - mean
        fits = np.ones(len(ideas), dtype=bool)
        if len(hill):
            # a rival has to beat its own top, on its own ground: nearer to it than to any other top
            margin[rivals] += math.log(math.log(cost[hill[0]] / levels[0]) + scale) - math.log(scale)
            alike = self.speed.kernel(points, self.embed([self.configs[hill[0]], leader, *self.closed]))
            fits = ~rivals | (alike[:, 0] > alike[:, 1:].max(axis=1))

        left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
        order = np.argsort(-gain(margin, np.sqrt(variance * left)) / price)
        order = order[fits[order]]
        turns = self.rng.permutation(count) < scouts
        # only a short list is worth the bookkeeping of what each pick tells about the others
        short = np.concatenate(
            [order[rivals[order] == side][: 2 * int((turns == side).sum()) + 16] for side in (False, True)]
        )
        points, basis, margin, price, rivals = points[short], basis[:, short], margin[short], price[short], rivals[short]
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        normal, free, picks = set(self.near), np.ones(len(short), dtype=bool), []
        for turn in turns:
            while (eligible := free & (rivals == turn)).any():
                left = np.maximum(covariance.diagonal(), 1e-6)
                j = int(np.argmax(np.where(eligible, gain(margin, np.sqrt(variance * left)) / price, -1.0)))
                free[j] = False
                config = ideas[short[j]]
                if config not in normal:
                    config = self.space.repair(config)  # only now: it is slow
                if config not in self.asked and config not in picks:
                    picks.append(config)
                    if turn:
                        self.envoys.add(config)
                    covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
                    break
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents, mates):
        """Parents crossed with mates, or with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        mothers, fathers = (
            pool[((len(pool) + 1) ** (rng.random(self.brood) ** 2)).astype(int) - 1] for pool in (parents, mates)
        )
        # half of the crossings go on beyond the mother, away from the father: a step that helped is taken again
        beyond = np.clip(2 * mothers - fathers, 0, self.cards - 1)
        donors = np.where(self.ordinal & (rng.random((self.brood, 1)) < 0.5), beyond, fathers)
        crossed = rng.random((self.brood, 1)) < 0.4
        child = np.where(crossed & (rng.random(shape) < 0.5), donors, mothers)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~crossed & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
