import itertools
import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtr, ndtri


def embed(configs, space):
    """Coordinates in which each parameter's or pair's city-block distance lies in [0, 1], each column's owner."""
    configs = np.asarray(configs)
    columns, owner, logs = [], [], []
    for i, size in enumerate(space.cardinalities):
        if space.ordinal[i]:
            columns.append(configs[:, i] / max(1, size - 1))
            owner.append(i)
            if size > 1 and min(space.values[i]) > 0:
                table = np.log(np.array(space.values[i], dtype=float))
                table -= table.min()
                logs.append((table[configs[:, i]], table.max()))
        else:
            columns += [0.5 * (configs[:, i] == value) for value in range(size)]
            owner += [i] * size
    # products, such as the threads of a block or the area of a tile, act of their own
    for (a, span_a), (b, span_b) in itertools.combinations(logs, 2):
        columns.append((a + b) / (span_a + span_b))
        owner.append(owner[-1] + 1)
    return np.column_stack(columns).astype(float), np.array(owner)


def kernel(a, b):
    return np.exp(-cdist(a, b, "cityblock"))


def representatives(points, count):
    """Greedy design: each point removes the most prior variance from all others, so extremes come late."""
    cov = kernel(points, points)
    chosen = []
    for _ in range(min(count, len(points))):
        variance = np.diag(cov) + 0.01
        value = (cov ** 2).sum(axis=0) / variance
        value[chosen] = -1.0
        j = int(np.argmax(value))
        chosen.append(j)
        cov = cov - np.outer(cov[:, j], cov[j]) / variance[j]
    return chosen


def yardstick(costs):
    """Log costs, scaled to -1 at the best and 0 at the median; slow ones approach 1, where failures lie."""
    logs = np.log(np.maximum(costs, 1e-12))
    finite = logs[np.isfinite(logs)]
    if len(finite) == 0:
        return np.ones(len(logs))
    middle = np.median(finite)
    gaps = (logs - middle) / max(middle - finite.min(), 1e-3)
    # bounded: differences among slow ones say little about how far below the best an unknown one may lie,
    # but would widen the belief about it and draw the search away from the surroundings of the best
    return np.where(gaps > 0, 1.0 - 1.0 / (1.0 + np.maximum(gaps, 0.0)), gaps)


def fit(points, owner, y, start, prior):
    """Most probable log decay rates of the owners and log noise; mean and variance are profiled out."""
    n = len(y)
    groups = [points[:, owner == i] for i in range(len(prior) - 1)]
    spans = np.array([cdist(g, g, "cityblock") for g in groups])

    def loss(params):
        rates, noise = np.exp(params[:-1]), np.exp(params[-1])
        signal = np.exp(-np.tensordot(rates, spans, 1))
        total = signal + noise * np.eye(n)
        inverse = np.linalg.inv(total)
        ones = inverse.sum(axis=0)
        residual = y - ones @ y / ones.sum()
        alpha = inverse @ residual
        quad = residual @ alpha + 1.0
        slope = inverse - (n + 1) / quad * np.outer(alpha, alpha)
        gradient = np.append(-rates * np.tensordot(spans, slope * signal, 2), noise * np.trace(slope))
        off = params - prior
        value = (n + 1) * np.log(quad) + np.linalg.slogdet(total)[1] + off @ off
        return 0.5 * value, 0.5 * gradient + off

    bounds = [(p - 3.0, p + 3.0) for p in prior]
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 10}).x


def expected_durations(points, known, call, took):
    """Single durations from those of whole calls: the member believed slowest is held to its call's time."""
    # additive, unlike the kernel of costs: main effects carry most of compile times, and they can be learned
    # from few calls and hold far from them, so that a slow value is avoided everywhere once it was met
    similar = 1.0 - cdist(points, points[known], "cityblock")
    own = similar[known]
    smoother = np.linalg.inv(own + 0.3 * np.eye(len(known)))
    label = took
    for _ in range(5):
        mean = label.mean()
        weights = smoother @ (label - mean)
        belief = mean + own @ weights
        slowest = np.full(call.max() + 1, -np.inf)
        np.maximum.at(slowest, call, belief)
        label = took + belief - slowest[call]
    return np.exp(mean + similar @ weights)


def foresee(means, cov, best, contenders, sizes):
    """Value of adding each candidate to the call, and what a surprise at it (column) tells of the others (rows).

    `means` and `best` have a column for each fantasy of what the members chosen so far turn out to be."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-9))
    effect = cov / sd
    # this call: expected improvement on the best measured, in closed form, so that its tail still ranks
    margin = (best - means) / sd[:, None]
    density = np.exp(-0.5 * margin ** 2) / math.sqrt(2.0 * math.pi)
    now = sd * np.maximum(margin * ndtr(margin) + density, 0.0).mean(axis=1)
    # next call: how far the lowest mean falls once the candidate is known; a surprise is
    # always weighed against its opposite, so that knowledge is never worth less than nothing
    named = means[contenders]
    after = np.zeros_like(means)
    for surprise in (sizes, -sizes):
        updated = effect[contenders][:, :, None] * surprise
        updated += named[:, None, :]
        own = means + sd[:, None] * surprise
        after += 0.5 * np.minimum(np.minimum(updated.min(axis=0), own), best)
    ahead = (np.minimum(best, named.min(axis=0)) - after).mean(axis=1)
    return now + ahead, effect


class ExactForesight:
    """Extend one exact posterior over all configurations with every result, and measure what per second of the call
    (its slowest compilation and all its benchmarks) most lowers the sum of the best cost expected after it and of
    the best cost the model, having learned from it, will be able to name for the next call."""

    def __init__(self, model_size=200, fit_size=60, candidate_limit=2000, shortlist=100, contenders=16, fantasies=16):
        self.model_size = model_size
        self.fit_size = fit_size
        self.candidate_limit = candidate_limit
        self.shortlist = shortlist
        self.contenders = contenders
        self.fantasies = fantasies

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.configs, self.costs, self.calls, self.took = [], [], [], []
        workers = self.workers = max(1, evaluate.parallel)
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        some = [pool[i] for i in rng.permutation(len(pool))[:400]]
        points, owner = embed(some, space)
        d = len(space.cardinalities)
        # more parameters: each matters less a priori; a product matters less than a parameter
        rates = np.where(np.arange(owner[-1] + 1) < d, 3.0 / d, 0.5 / d)
        self.prior = np.log(np.append(rates, 0.01))
        self.params, self.fitted_at = self.prior, 0
        # half a round: fewer members meet the slow tail of compile times, still unknown;
        # one by one, three results suffice for the model to choose better than a design does
        batch = [some[j] for j in representatives(points * rates[owner], max(workers // 2, 3))]
        for i in range(0, len(batch), workers):
            self.measure(evaluate, batch[i:i + workers])
        while True:
            n = len(self.configs)
            if n >= min(1.4 * self.fitted_at, self.fitted_at + self.model_size):
                self.rebuild(pool)
            if not self.open.any():
                return
            # while little is known, short calls: their slowest member costs less, and each tells the next where to go
            chosen = self.choose(min(workers, max(1, workers // 4, n // 3)))
            self.measure(evaluate, [self.names[j] for j in chosen])
            for i, j in enumerate(chosen):
                self.learn(j, n + i)

    def measure(self, evaluate, call):
        """Evaluate the members of one call; record their costs and what the call took."""
        before = evaluate.spent
        costs = list(evaluate(call))
        self.took += [max(evaluate.spent - before, 1e-9)] * len(call)
        self.calls += [len(self.configs)] * len(call)
        self.costs += costs
        self.configs += call

    def subset(self, z, limit):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= limit:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = limit // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def rebuild(self, pool):
        """Fit the kernel and set up the posterior of all candidates; the evaluated ones come first."""
        seen = set(self.configs)
        fresh = [c for c in pool if c not in seen]
        if len(fresh) > self.candidate_limit:  # too many to score: a random part and the best's neighbours
            part = [fresh[i] for i in self.rng.permutation(len(fresh))[:self.candidate_limit]]
            elite = [self.configs[i] for i in np.argsort(self.costs, kind="stable")[:4]]
            near = [tuple(c) for e in elite for c in self.space.neighbors(e)]
            fresh = [c for c in dict.fromkeys(part + near) if c not in seen]
        z = yardstick(self.costs)
        if len(z) >= 8:  # fewer tell less than the prior does
            keep = self.subset(z, self.fit_size)
            points, owner = embed([self.configs[i] for i in keep], self.space)
            self.params = fit(points, owner, z[keep], self.params, self.prior)
        self.fitted_at = len(z)
        self.rows = self.subset(z, self.model_size).tolist()
        self.names = [self.configs[i] for i in self.rows] + fresh
        k = len(self.rows)
        self.places = list(range(k))
        self.open = np.arange(len(self.names)) >= k
        points, owner = embed(self.names, self.space)
        rates = np.exp(self.prior[:-1])
        self.timing = points * (rates / rates.sum())[owner]
        self.points = points * np.exp(self.params)[owner]
        self.noise = math.exp(self.params[-1])
        capacity = k + self.model_size + self.workers
        self.root = np.zeros((capacity, capacity))
        self.factor = np.empty((capacity, len(self.names)))
        cov = kernel(self.points[:k], self.points)
        self.root[:k, :k] = np.linalg.cholesky(cov[:, :k] + self.noise * np.eye(k))
        self.factor[:k] = solve_triangular(self.root[:k, :k], cov, lower=True)
        self.left = 1.0 - (self.factor[:k] ** 2).sum(axis=0)

    def learn(self, j, row):
        """Extend the factor of the posterior by candidate j, evaluated as number `row`."""
        k = len(self.rows)
        known = self.factor[:k, j]
        cov = kernel(self.points[j:j + 1], self.points)[0] - known @ self.factor[:k]
        pivot = math.sqrt(max(cov[j], 0.0) + self.noise)
        self.root[k, :k], self.root[k, k] = known, pivot
        self.factor[k] = cov / pivot
        self.left -= self.factor[k] ** 2
        self.rows.append(row)
        self.places.append(j)
        self.open[j] = False

    def choose(self, count):
        """The candidates for the next call."""
        if self.workers > 1 or len(self.costs) == self.fitted_at:
            took, call = np.array(self.took), np.array(self.calls)
            size = np.bincount(call)[call]
            # benchmarks run one after another: left in, they would make the members of the longer, later calls,
            # and with them the surroundings of the best, look slow to compile
            self.share = 0.5 * (took / size).min()
            compiling = np.log(took - self.share * size)
            self.duration = expected_durations(self.timing, self.places, call[self.rows], compiling[self.rows])

        # posterior of every candidate, with the generalised-least-squares mean: the good region is over-sampled
        z = yardstick(self.costs)
        k = len(self.rows)
        sides = np.column_stack([z[self.rows], np.ones(k)])
        white, ones = solve_triangular(self.root[:k, :k], sides, lower=True).T
        mean = ones @ white / (ones @ ones)
        white = white - mean * ones
        variance = (white @ white + 1.0) / (k + 1)
        center = mean + white @ self.factor[:k]
        spread = np.sqrt(variance * np.maximum(self.left, 1e-9))

        # the most promising come first: where no value is left, ties go to them
        short = np.flatnonzero(self.open)
        short = short[np.argsort((center - 2.0 * spread)[short], kind="stable")[:self.shortlist]]
        contenders = np.argsort((center - spread)[short], kind="stable")[:self.contenders]
        finalists, cross, duration = self.points[short], self.factor[:k, short], self.duration[short]
        cov = variance * (kernel(finalists, finalists) - cross.T @ cross)

        # where results are known at once, fantasies differ only in the size of the next surprise: a few will do
        fantasies = 8 if self.workers == 1 else self.fantasies
        means = np.repeat(center[short][:, None], fantasies, axis=1)
        best = np.full(fantasies, z.min())
        # equally likely sizes of a surprise: the quantiles of the half-normal distribution
        quantiles = ndtri(0.5 + 0.5 * (np.arange(fantasies) + 0.5) / fantasies)
        total, slowest, chosen = 0.0, 0.0, []
        for _ in range(min(count, len(short))):
            sizes = self.rng.permutation(quantiles)
            value, effect = foresee(means, cov, best, contenders, sizes)
            # the slowest member holds up the whole call, so it has to pay for all of them
            rate = (total + value) / (np.maximum(slowest, duration) + self.share * (len(chosen) + 1))
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            chosen.append(j)
            total += value[j]
            slowest = max(slowest, duration[j])
            # imagine its result in every fantasy and learn from it
            surprise = sizes * self.rng.choice([-1.0, 1.0], fantasies)
            best = np.minimum(best, means[j] + effect[j, j] * surprise)
            means = means + np.outer(effect[:, j], surprise)
            cov = cov - np.outer(effect[:, j], effect[:, j])
        return [int(short[j]) for j in chosen]
