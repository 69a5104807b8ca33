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
            # sizes act by their ratios: 16 to 32 is a longer way than 240 to 256, yet each step counts as well;
            # arcsinh is a logarithm that admits zero and negative numbers
            logs = np.arcsinh(np.array(space.values[i], dtype=float))
            ratios = (logs - logs[0]) / ((logs[-1] - logs[0]) or 1.0)
            steps = np.arange(size) / max(1, size - 1)
            columns.append((0.5 * (steps + ratios))[configs[:, i]])
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
        value = (cov**2).sum(axis=0) / variance
        value[chosen] = -1.0
        j = int(np.argmax(value))
        chosen.append(j)
        cov = cov - np.outer(cov[:, j], cov[j]) / variance[j]
    return chosen


def target_scale(costs):
    """The map from costs to targets: log costs, -1 at the best of `costs` and 0 at their median; the slow half
    is compressed, failures join its end."""
    logs = np.log([max(cost, 1e-12) for cost in costs if cost < math.inf])
    if len(logs) == 0:
        return lambda some: np.where(np.isfinite(some), 0.0, 1.0)
    middle = np.median(logs)
    unit = max(middle - logs.min(), 1e-3)
    ceiling = max(1.0, np.log1p((np.quantile(logs, 0.9) - middle) / unit))

    def to_target(some):
        gaps = (np.log(np.maximum(some, 1e-12)) - middle) / unit
        return np.minimum(np.where(gaps > 0, np.log1p(np.maximum(gaps, 0)), gaps), ceiling)

    return to_target


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
        gradient = np.append(
            -rates * np.tensordot(spans, slope * signal, 2), noise * np.trace(slope)
        )
        off = params - prior
        value = (n + 1) * np.log(quad) + np.linalg.slogdet(total)[1] + off @ off
        return 0.5 * value, 0.5 * gradient + off

    bounds = [(p - 3.0, p + 3.0) for p in prior]
    return minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 10}
    ).x


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

    `means` and `best` have a column for each fantasy of what the members chosen so far turn out to be."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-9))
    effect = cov / sd
    # this call: expected improvement on the best measured, in closed form, so that its tail still ranks
    margin = (best - means) / sd[:, None]
    density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
    now = sd * np.maximum(margin * ndtr(margin) + density, 0.0).mean(axis=1)
    # next call: how far the lowest mean falls once the candidate is known; a surprise is
    # always weighed against its opposite, so that knowledge is never worth less than nothing
    likely = np.argsort(means.mean(axis=1) - sd, kind="stable")[:contenders]
    named = means[likely]
    after = np.zeros_like(means)
    for surprise in (sizes, -sizes):
        updated = effect[likely][:, :, None] * surprise
        updated += named[:, None, :]
        own = means + sd[:, None] * surprise
        after += 0.5 * np.minimum(np.minimum(updated.min(axis=0), own), best)
    ahead = (np.minimum(best, named.min(axis=0)) - after).mean(axis=1)
    return now + ahead, effect


class ConditionedForesight:
    """Tell values apart by their steps and their ratios, and condition the joint posterior of a shortlist
    on each member as it is picked: on its real result where members
    are measured one by one, on fantasies of it where a call has to be filled. What is picked most lowers, per second,
    the sum of the best cost expected and of the best cost the model, having learned from it, can name next."""

    def __init__(
        self, model_size=200, candidate_limit=2500, shortlist=64, contenders=16, fantasies=24
    ):
        self.model_size = model_size
        self.candidate_limit = candidate_limit
        self.shortlist = shortlist
        self.contenders = contenders
        self.fantasies = fantasies

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.space, self.rng = evaluate, space, rng
        self.workers = workers = max(1, evaluate.parallel)
        self.configs, self.costs, self.calls, self.took, self.promising = [], [], [], [], []
        # more parameters that vary: each matters less a priori, so that the total decay stays the same
        varying = max(1, sum(size > 1 for size in space.cardinalities))
        rates = np.full(len(space.cardinalities), math.log(3.0 / varying))
        self.prior = np.append(rates, math.log(0.01))
        self.params, self.fitted_at = self.prior, 0
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        some = [pool[i] for i in rng.permutation(len(pool))[:800]]
        points, owner = embed(some, space)
        # half a round: fewer members meet the slow tail of compile times, still unknown
        design = representatives(points, max(workers // 2, 5), np.exp(rates)[owner])
        batch = [some[j] for j in design]
        for call in [batch] if workers > 1 else [[c] for c in batch]:
            self.measure(call)
        while True:
            seen = set(self.configs)
            fresh = [c for c in pool if c not in seen]
            if not fresh:
                return
            if len(pool) > self.candidate_limit:
                # too many to score: a random part, the best's neighbours, and what was promising stays in view
                part = [fresh[i] for i in rng.permutation(len(fresh))[: self.candidate_limit]]
                elite = [self.configs[i] for i in np.argsort(self.costs, kind="stable")[:4]]
                near = [tuple(c) for e in elite for c in space.neighbors(e)] + self.promising
                fresh = list(dict.fromkeys(part + [c for c in near if c not in seen]))
            # while little is known, short calls: their slowest member costs less, and each tells the next
            # where to go; several rounds of the workers only once one round adds little knowledge
            n = len(self.configs)
            known = max(1, workers // 4, n // 3)
            self.advance(fresh, min(known, workers * max(1, n // (8 * workers))))

    def measure(self, batch):
        before = self.evaluate.spent
        self.costs += list(self.evaluate(batch))
        rounds = -(-len(batch) // self.workers)
        self.took += [math.log(max(self.evaluate.spent - before, 1e-9) / rounds)] * len(batch)
        self.calls += [len(self.configs)] * len(batch)
        self.configs += batch

    def model_rows(self, z):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= self.model_size:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = self.model_size // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def advance(self, fresh, count):
        """Choose and measure up to `count` of the fresh configurations with one posterior, kept up to date."""
        lowest, to_target = min(self.costs), target_scale(self.costs)
        z = to_target(self.costs)
        rows = self.model_rows(z)
        y = z[rows]
        points, owner = embed([self.configs[i] for i in rows], self.space)
        candidates, _ = embed(fresh, self.space)
        if len(z) >= 1.3 * self.fitted_at:
            self.params = fit(points, owner, y, self.params, self.prior)
            self.fitted_at = len(z)

        # posterior of every candidate, with the generalised-least-squares mean: the good region is over-sampled
        scale = np.exp(self.params[:-1])[owner]
        noise = math.exp(self.params[-1])
        root = np.linalg.cholesky(kernel(points, points, scale) + noise * np.eye(len(y)))
        ones = solve_triangular(root, np.ones(len(y)), lower=True)
        white = solve_triangular(root, y, lower=True)
        mean = ones @ white / (ones @ ones)
        white = white - mean * ones
        variance = (white @ white + 1.0) / (len(y) + 1)
        cross = solve_triangular(root, kernel(points, candidates, scale), lower=True)
        center = mean + cross.T @ white
        spread = np.sqrt(variance * np.maximum(1.0 - (cross**2).sum(axis=0), 1e-9))

        # several degrees of optimism: the greatest alone would fill the list with far corners while little is known
        ranked = [np.argsort(center - k * spread, kind="stable") for k in (0.0, 1.0, 2.0)]
        short = np.unique(np.concatenate([order[: self.shortlist] for order in ranked]))
        # the most promising come first: where no value is left, ties go to them
        short = short[np.argsort((center - spread)[short], kind="stable")]
        self.promising = [fresh[i] for i in short]
        finalists, cross = candidates[short], cross[:, short]
        # measurements repeat: the noise is roughness that belongs to each configuration and can be won
        own = noise * np.eye(len(short))
        cov = variance * (kernel(finalists, finalists, scale) + own - cross.T @ cross)
        duration = expected_durations(
            points,
            np.array(self.calls)[rows],
            np.array(self.took)[rows],
            finalists,
            np.exp(self.prior)[owner],
        )

        # where results are real, fantasies stand for the next one only, and fewer will do
        columns = self.fantasies if self.workers > 1 else max(1, self.fantasies // 3)
        means = np.repeat(center[short][:, None], columns, axis=1)
        best = np.full(columns, z.min())
        # equally likely sizes of a surprise: the quantiles of the half-normal distribution
        quantiles = ndtri(0.5 + 0.5 * (np.arange(columns) + 0.5) / columns)
        total, slowest, chosen = 0.0, 0.0, []
        for _ in range(min(count, len(short))):
            sizes = self.rng.permutation(quantiles)
            value, effect = foresee(means, cov, best, self.contenders, sizes)
            # the slowest member holds up the whole call, so it has to pay for all of them
            rate = (total + value) / np.maximum(slowest, duration)
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            chosen.append(j)
            if self.workers == 1:
                self.measure([self.promising[j]])
                if self.costs[-1] < lowest:
                    return  # a new best: its neighbours may be missing from the shortlist
                surprise = (to_target(self.costs[-1]) - means[j, 0]) / effect[j, j]
            else:
                # imagine its result in every fantasy and learn from it
                total += value[j]
                slowest = max(slowest, duration[j])
                surprise = sizes * self.rng.choice([-1.0, 1.0], columns)
            means = means + np.outer(effect[:, j], surprise)
            cov = cov - np.outer(effect[:, j], effect[:, j])
            best = np.minimum(best, means[j])
        if self.workers > 1:
            self.measure([self.promising[j] for j in chosen])
