import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on numeric codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log rate of each parameter, log noise

    def kernel(self, a, b):
        """Heavy-tailed, a mixture of all length scales: what a parameter does here also tells something far away."""
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a**2 @ weight)[:, None] + b**2 @ weight - 2.0 * (a * weight) @ b.T
        return 1.0 / (1.0 + np.maximum(distance, 0.0))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # many clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; its slope takes two matrix products."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel**2  # the kernel's slope along the distance is minus its square
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
    """Expected improvement of a lognormal gap; where there is none to speak of, the less hopeless is still ahead."""
    z = margin / spread
    expected = ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread)
    return np.maximum(expected, 0.0) + 1e-9 * np.exp(np.minimum(z, 0.0))


def distinct(cost, rows):
    """The working ones of the rows, fastest first. The same time to the last digit is the same code: the first stays."""
    levels, first = np.unique(cost[rows], return_index=True)
    return rows[first[np.isfinite(levels)]]


class CarriedTrends:
    """Expect what has lately worked to go on: one more step along a parameter to do in part what the step before it
    did, and the best to fall once more by as much as it lately fell. Instalments of the budget buy the improvement
    per second that Gaussian processes expect of children of the archive; and while the best stands still, also around
    a rival: a decisive, neglected parameter pinned to a value that the best does not have."""

    def __init__(
        self, pace=0.0125, brood=192, keep=128, growth=1.25, resolution=0.002, penalty=2.5, notable=0.005, patience=3
    ):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children that a plan considers
        self.keep = keep  # parents, and about as many results that the models see
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.notable = notable  # smaller improvements are no progress
        self.patience = patience  # plans without progress after which a slice is left

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # categorical: one column for each value; ordinal: one for each threshold, which takes two steps to cross:
        # neighbouring steps share a column, hence the models carry half of a trend on beyond what was measured
        ramp = lambda c: (np.tri(c) + np.tri(c, k=-1)) / math.sqrt(2.0)
        self.codes = [ramp(c) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        self.step = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 1.0)
        span = np.where(self.ordinal, self.step, 0.5)[owner]  # another category changes two columns
        # far away, kernels are several times as expensive to try, and slower: how much, in logs of gaps, see below
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took = [], [], []
        self.table = np.empty((0, len(widths)), dtype=int)  # the configurations, brought up to date by each plan
        self.center, self.near = None, []  # row of the best, and its neighbours
        self.pin, self.record, self.tries = None, math.inf, 0  # the slice, its best, plans since that improved

        mark, since, queue = math.inf, 0.0, []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
            best = min(cost for _, cost in done)
            if best < mark * (1.0 - self.notable):  # what was planned around the former best is old news
                mark, since, queue = best, evaluate.spent, []
            while evaluate.pending < evaluate.parallel:
                queue = queue or self.plan(evaluate.spent, since)
                if not queue:
                    break
                self.send(evaluate, [queue.pop(0)])

    def send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def plan(self, spent, since):
        """New configurations for a share of the budget, early on for less; none when nothing is left to visit."""
        fresh = np.array(self.configs[len(self.table) :], dtype=int).reshape(-1, len(self.cards))
        self.table = np.vstack([self.table, fresh])
        count = max(4, int(len(self.costs) * min(0.25, self.pace / (spent + 1e-9))))
        picks = []
        if min(self.costs) < math.inf:
            # the larger the part of the run without progress, the more goes to rivals, but never more than half
            if self.rng.random() < 0.5 * (spent - since) / (spent + 0.05):
                self.choose_slice()
                if self.pin is not None:
                    picks = self.promising(count, self.pin)
                    self.tries += 1
                    if not picks:  # used up, or the pinned value means nothing here
                        self.pin = None
            picks = picks or self.promising(count, None)
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def choose_slice(self):
        """Keep the pinned parameter and value while they make progress; else draw others."""
        cost = np.array(self.costs)
        leader, best = self.table[cost.argmin()], cost.min()
        if self.pin is not None:
            i, value = self.pin
            record = cost[self.table[:, i] == value].min(initial=math.inf)
            if record < self.record * (1.0 - self.notable):
                self.record, self.tries = record, 0
            if leader[i] != value and self.tries < self.patience:
                return
        usual = float(np.median(np.log(cost[np.isfinite(cost)] / best))) + self.resolution
        rates = np.exp(self.speed.logs[:-1]) * self.step
        slices, records, weights = [], [], []
        for i, card in enumerate(self.cards):
            values = np.arange(card)
            inside = self.table[:, i, None] == values
            record = np.where(inside, cost[:, None], math.inf).min(axis=0)
            steps = np.abs(values - leader[i]) if self.ordinal[i] else values != leader[i]
            matters = 1.0 - 1.0 / (1.0 + rates[i] * steps)  # what the model knows to be idle makes no rival
            promise = np.exp(-np.minimum(np.log(record / best) / usual, 3.0))
            slices.extend((i, int(value)) for value in values)
            records.extend(record)
            weights.extend(matters * promise / (1.0 + inside.sum(axis=0)))  # neglected slices first
        weights = np.array(weights)
        self.pin = None
        if weights.sum() > 0.0:
            j = int(self.rng.choice(len(weights), p=weights / weights.sum()))
            self.pin, self.record, self.tries = slices[j], records[j], 0

    def promising(self, count, pin):
        """The most improvement per second, on the best of the slice that is pinned, or on the best of all."""
        cost, took = np.array(self.costs), np.array(self.took)
        everyone = distinct(cost, np.arange(len(cost)))
        if pin is None:
            mine, source = everyone, everyone
            if self.center != everyone[0]:
                self.center, self.near = everyone[0], self.space.neighbors(self.configs[everyone[0]])
        else:
            mine = distinct(cost, np.flatnonzero(self.table[:, pin[0]] == pin[1]))
            source = np.append(mine[: self.keep // 2], everyone)  # the best of all, pinned, may do well there too
        parents = self.table[source[: self.keep]]
        ideas = np.vstack([parents[:16], self.children(parents)])
        if pin is not None:
            ideas[:, pin[0]] = pin[1]
        ideas = dict.fromkeys((self.near if pin is None else []) + list(map(tuple, ideas.tolist())))
        ideas = [config for config in ideas if config not in self.asked]
        if not ideas:
            return []

        half = self.keep // 2  # the latest show, clones included, what does nothing
        rows = np.unique(np.concatenate([everyone[:half], mine[:half], np.arange(len(cost))[-half:]]))
        x, works = self.embed(self.table[rows]), np.isfinite(cost[rows])
        rivals = mine if len(mine) else everyone
        goal, best = cost[rivals[0]], cost[everyone[0]]
        former = cost[: 2 * len(cost) // 3].min(initial=math.inf)
        # logs of the gap to the goal: as sharp among the last per cents as among the factors far away,
        # yet for a slice that lags behind no sharper than its lag asks for. No improvement beyond the scale counts:
        # while the best falls by leaps, another leap must be worth more than the last per cents of a bad region
        scale = max(
            float(np.quantile(np.log(cost[rivals] / goal), 0.1)),
            0.1 * math.log(goal / best),
            math.log(former / best) if former < math.inf else 0.0,
            self.resolution,
        )
        self.speed.far = math.log1p(scale)  # e times slower than the goal
        target = np.log(np.maximum(np.log(cost[rows][works] / goal), 0.0) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if pin is None and len(cost) >= self.due:
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
            strayed = pin is not None and config[pin[0]] != pin[1]
            if config not in self.asked and config not in picks and not strayed:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Not normalised: steps on from a worse parent past a better one, which follow a trend in strides; mixtures
        of two parents; and parents with mostly few parameters changed."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        better, worse = parents[ranks.min(axis=0)], parents[ranks.max(axis=0)]
        beyond = np.where(self.ordinal, np.clip(2 * better - worse, 0, self.cards - 1), better)
        kind = rng.random((self.brood, 1))
        strides, mixed = kind < 0.15, kind < 0.4
        base, other = np.where(strides, better, mothers), np.where(strides, beyond, fathers)
        child = np.where(mixed & (rng.random(shape) < 0.5), other, base)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~mixed & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return np.where(mutated, value, child)
