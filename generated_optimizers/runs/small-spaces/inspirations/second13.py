import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtr, ndtri


def embed(configs, space):
    """Coordinates in which each parameter's city-block distance lies in [0, 1], and each column's parameter."""
    configs = np.asarray(configs)
    columns, owner = [], []
    for i, size in enumerate(space.cardinalities):
        if space.ordinal[i]:
            columns.append(configs[:, i] / max(1, size - 1))
            owner.append(i)
        else:
            columns += [0.5 * (configs[:, i] == value) for value in range(size)]
            owner += [i] * size
    return np.array(columns, dtype=float).T, np.array(owner)


def kernel(a, b, scale):
    return np.exp(-cdist(a * scale, b * scale, "cityblock"))


def representatives(points, count, scale):
    """Greedy design: each point removes the most prior variance from all others, so extremes come late."""
    cov = kernel(points, points, scale)
    chosen = []
    for _ in range(min(count, len(points))):
        variance = np.diag(cov) + 0.01
        value = (cov ** 2).sum(axis=0) / variance
        value[chosen] = -1.0
        j = int(np.argmax(value))
        chosen.append(j)
        cov = cov - np.outer(cov[:, j], cov[j]) / variance[j]
    return chosen


def yardstick(known):
    """Scale of log costs, -1 at the best known and 0 at the median; slow ones are compressed, failures join them."""
    finite = [cost for cost in known if math.isfinite(cost)]
    if not finite:
        return lambda costs: np.ones(len(costs))
    logs = np.log(np.maximum(finite, 1e-12))
    middle = np.median(logs)
    unit = max(middle - logs.min(), 1e-3)
    failing = max(1.0, math.log1p((np.quantile(logs, 0.9) - middle) / unit))

    def scaled(costs):
        gaps = (np.log(np.maximum(costs, 1e-12)) - middle) / unit
        gaps = np.where(gaps > 0, np.log1p(np.maximum(gaps, 0)), gaps)
        return np.where(np.isfinite(gaps), gaps, failing)

    return scaled


def fit(points, owner, y, start, prior):
    """Most probable log decay rates of the parameters and log noise; mean and variance are profiled out."""
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


def expected_durations(points, call, took, candidates, scale):
    """Single durations from those of whole calls: only the member believed slowest is held to its call's time."""
    similar = kernel(points, points, scale)
    smoother = np.linalg.inv(similar + np.eye(len(points)))
    label = took
    for _ in range(5):
        mean = label.mean()
        weights = smoother @ (label - mean)
        belief = mean + similar @ weights
        slowest = np.full(call.max() + 1, -np.inf)
        np.maximum.at(slowest, call, belief)
        label = took + belief - slowest[call]
    return np.exp(mean + kernel(candidates, points, scale) @ weights)


def foresee(means, cov, best, contenders, sizes):
    """Value of measuring each candidate, and what a surprise at it (column) tells of the others (rows).

    `means` and `best` have a column for each fantasy of the results so far, a single one where they are known."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-9))
    effect = cov / sd
    # this call: expected improvement on the best measured, in closed form, so that its tail still ranks
    margin = (best - means) / sd[:, None]
    density = np.exp(-0.5 * margin ** 2) / math.sqrt(2.0 * math.pi)
    now = sd * np.maximum(margin * ndtr(margin) + density, 0.0).mean(axis=1)
    if len(contenders) == 0:
        return now, effect
    # next call: how far the lowest mean falls once the candidate is known; a surprise is
    # always weighed against its opposite, so that knowledge is never worth less than nothing
    named = means[contenders]
    after = 0.0
    for surprise in (sizes, -sizes):
        updated = effect[contenders][:, :, None] * surprise
        updated += named[:, None, :]
        own = means + sd[:, None] * surprise
        after = after + 0.5 * np.minimum(np.minimum(updated.min(axis=0), own), best)
    ahead = (np.minimum(best, named.min(axis=0)) - after).mean(axis=1)
    return now + ahead, effect


class ExactForesight:
    """From a shortlist of mixed optimism, take what per second most lowers the sum of the best cost now and of the
    best cost the model, until it is full, will be able to name next. What is charged alone is measured at once and
    conditioned on exactly; calls of parallel workers grow with what is known and are filled by imagined results."""

    def __init__(self, model_size=150, kernel_entries=250000, shortlist=200, contenders=24, fantasies=24):
        self.model_size = model_size
        self.kernel_entries = kernel_entries
        self.shortlist = shortlist
        self.contenders = contenders
        self.fantasies = fantasies

    def __call__(self, evaluate, space, rng):
        self.rng = rng
        self.workers = workers = max(1, evaluate.parallel)
        self.pool = [tuple(c) for c in space.pool(20000).tolist()]
        self.index = {config: i for i, config in enumerate(self.pool)}
        self.coords, self.owner = embed(self.pool, space)
        self.rows, self.costs, self.calls, self.took = [], [], [], []  # rows: places in the pool
        d = len(space.cardinalities)
        # more parameters: each matters less a priori, so that the total decay stays the same
        self.prior = np.append(np.full(d, math.log(3.0 / d)), math.log(0.01))
        self.params, self.fitted_at = self.prior, 0

        part = rng.permutation(len(self.pool))[:800]
        # half a round: fewer members meet the slow tail of compile times, still unknown
        chosen = representatives(self.coords[part], max(workers // 2, 5), np.exp(self.prior)[self.owner])
        for i in range(0, len(chosen), workers):
            self.measure(evaluate, part[chosen[i:i + workers]])
        while True:
            fresh = self.candidates(space)
            if len(fresh) == 0:
                return
            # while little is known, short calls: their slowest member costs less, and each tells the next
            # where to go; several rounds of the workers only once one round adds little knowledge
            n = len(self.rows)
            known = max(1, workers // 4, n // 3)
            self.propose(evaluate, fresh, min(known, workers * max(1, n // (8 * workers))))

    def measure(self, evaluate, rows):
        """Evaluate the members of one call; record their costs and what a round of the workers took."""
        before = evaluate.spent
        costs = list(evaluate([self.pool[i] for i in rows]))
        rounds = -(-len(costs) // self.workers)
        self.took += [math.log(max(evaluate.spent - before, 1e-9) / rounds)] * len(costs)
        self.calls += [len(self.rows)] * len(costs)
        self.costs += costs
        self.rows += [int(i) for i in rows]

    def candidates(self, space):
        """What is unvisited; where that is too much to score, a random part and the neighbours of the best."""
        elite = np.argsort(self.costs, kind="stable")[:4]
        near = [tuple(c) for i in elite for c in space.neighbors(self.pool[self.rows[i]])]
        new = [c for c in dict.fromkeys(near) if c not in self.index]
        if new:  # the pool is only a part of the space: let it grow around the best
            self.index.update(zip(new, range(len(self.pool), len(self.pool) + len(new))))
            self.pool += new
            self.coords = np.vstack([self.coords, embed(new, space)[0]])
        unvisited = np.ones(len(self.pool), dtype=bool)
        unvisited[self.rows] = False
        fresh = np.flatnonzero(unvisited)
        limit = self.kernel_entries // min(len(self.rows), self.model_size)
        if len(fresh) > limit:
            around = np.array([self.index[c] for c in near], dtype=int)
            fresh = np.union1d(self.rng.choice(fresh, limit, replace=False), around[unvisited[around]])
        return fresh

    def model_members(self, z):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= self.model_size:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = self.model_size // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def propose(self, evaluate, fresh, count):
        """Choose and measure the next `count` configurations."""
        scaled = yardstick(self.costs)
        z = scaled(self.costs)
        members = self.model_members(z)
        y = z[members]
        points, candidates = self.coords[np.array(self.rows)[members]], self.coords[fresh]
        full = len(z) > self.model_size
        if len(z) >= (2.0 if full else 1.2) * self.fitted_at:
            self.params = fit(points, self.owner, y, self.params, self.prior)
            self.fitted_at = len(z)

        # posterior of every candidate, with the generalised-least-squares mean: the good region is over-sampled
        scale = np.exp(self.params[:-1])[self.owner]
        noise = math.exp(self.params[-1])
        root = np.linalg.cholesky(kernel(points, points, scale) + noise * np.eye(len(y)))
        ones = solve_triangular(root, np.ones(len(y)), lower=True)
        white = solve_triangular(root, y, lower=True)
        mean = ones @ white / (ones @ ones)
        white = white - mean * ones
        variance = (white @ white + 1.0) / (len(y) + 1)
        cross = solve_triangular(root, kernel(points, candidates, scale), lower=True)
        center = mean + cross.T @ white
        spread = np.sqrt(variance * np.maximum(1.0 - (cross ** 2).sum(axis=0), 1e-9))

        # the best by each degree of optimism in turn: great optimism alone would, while little is known,
        # admit only far corners, and neither the best's surroundings nor informative centres
        bounds = center - np.array([[0.0], [1.0], [2.0]]) * spread
        order = np.argsort(bounds, axis=1, kind="stable")[:, :self.shortlist]
        short = np.array(list(dict.fromkeys(order.T.ravel().tolist()))[:self.shortlist])
        # a full model drops a result for each one it takes in: knowledge is worth no foresight any more
        contenders = np.argsort((center - spread)[short], kind="stable")[:0 if full else self.contenders]
        finalists, cross = candidates[short], cross[:, short]
        cov = variance * (kernel(finalists, finalists, scale) - cross.T @ cross)
        duration = expected_durations(points, np.array(self.calls)[members], np.array(self.took)[members],
                                      finalists, np.exp(self.prior)[self.owner])

        # where results are known at once, fantasies differ only in the size of the next surprise: a few will do
        alone = self.workers == 1
        fantasies = 8 if alone else self.fantasies
        means = np.repeat(center[short][:, None], 1 if alone else fantasies, axis=1)
        best = np.full(means.shape[1], z.min())
        # equally likely sizes of a surprise: the quantiles of the half-normal distribution
        quantiles = ndtri(0.5 + 0.5 * (np.arange(fantasies) + 0.5) / fantasies)
        total, slowest, chosen = 0.0, 0.0, []
        for _ in range(min(count, len(short))):
            sizes = self.rng.permutation(quantiles)
            value, effect = foresee(means, cov, best, contenders, sizes)
            # the slowest member holds up the whole call, so it has to pay for all of them
            rate = (total + value) / np.maximum(slowest, duration)
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            chosen.append(j)
            own = effect[j, j]
            observed = own ** 2 + variance * noise  # variance of a result, part of which may be noise
            if alone:
                self.measure(evaluate, fresh[short[[j]]])
                result = scaled(self.costs[-1:])[0]
                surprise = own * (result - means[j]) / observed
                best = np.minimum(best, result)
            else:
                # imagine its result in every fantasy and learn from it
                total += value[j]
                slowest = max(slowest, duration[j])
                signs = self.rng.choice([-1.0, 1.0], fantasies)
                surprise = own / math.sqrt(observed) * sizes * signs
                best = np.minimum(best, means[j] + own * surprise)
            means = means + np.outer(effect[:, j], surprise)
            cov = cov - own ** 2 / observed * np.outer(effect[:, j], effect[:, j])
        if not alone:
            self.measure(evaluate, fresh[short[chosen]])
