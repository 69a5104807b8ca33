import math
from itertools import combinations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtr, ndtri


def embed(configs, space):
    """Coordinates in which the city-block distance of each parameter, and of each product of two sizes, lies in
    [0, 1], and each column's owner: the parameters are numbered first, then the products."""
    configs = np.asarray(configs)
    columns, owner, sizes = [], [], []
    for i, size in enumerate(space.cardinalities):
        if space.ordinal[i]:
            columns.append(configs[:, i] / max(1, size - 1))
            owner.append(i)
            if size > 2 and min(space.values[i]) > 0:  # a size rather than a switch
                logs = np.log(np.array(space.values[i], dtype=float))
                sizes.append((logs[configs[:, i]], np.ptp(logs)))
        else:
            columns += [0.5 * (configs[:, i] == value) for value in range(size)]
            owner += [i] * size
    # threads in a block, area of a tile: products act of their own, whatever their factors are
    for j, ((a, span_a), (b, span_b)) in enumerate(combinations(sizes, 2)):
        columns.append((a + b) / (span_a + span_b))
        owner.append(len(space.cardinalities) + j)
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


def targets(costs):
    """Log costs, -1 at the best and 0 at the median; the slow half is compressed, failures join its end."""
    costs = np.asarray(costs, dtype=float)
    finite = np.isfinite(costs)
    z = np.ones(len(costs))
    if finite.any():
        logs = np.log(np.maximum(costs[finite], 1e-12))
        middle = np.median(logs)
        gaps = (logs - middle) / max(middle - logs.min(), 1e-3)
        gaps = np.where(gaps > 0, np.log1p(np.maximum(gaps, 0)), gaps)
        z[finite] = gaps
        z[~finite] = max(1.0, np.quantile(gaps, 0.9))
    return z


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
    """Value of adding each candidate to the call, and what a surprise at it (column) tells of the others (rows).

    `means` and `best` have a column for each fantasy of what the members chosen so far turn out to be."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-9))
    effect = cov / sd
    # this call: expected improvement on the best measured, in closed form, so that its tail still ranks
    margin = (best - means) / sd[:, None]
    density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
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


class GrowingForesight:
    """Let calls grow in proportion to what is known by a model of parameters and products of sizes, and fill each
    one with the members that, per second of the whole call, most lower the sum of the best cost expected after it
    and of the best cost the model, having learned from it, will be able to name for the next call."""

    def __init__(
        self, model_size=300, candidate_limit=2500, shortlist=200, contenders=24, fantasies=32
    ):
        self.model_size = model_size
        self.candidate_limit = candidate_limit
        self.shortlist = shortlist
        self.contenders = contenders
        self.fantasies = fantasies

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.configs, self.costs, self.calls, self.took = [], [], [], []
        d = len(space.cardinalities)
        workers = max(1, evaluate.parallel)
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        seen = set()
        call = 0
        while True:
            fresh = [c for c in pool if c not in seen]
            if not fresh:
                return
            n = len(self.configs)
            if n == 0:
                fresh = [fresh[i] for i in rng.permutation(len(fresh))[:800]]
                points, owner = embed(fresh, space)
                # more parameters: each matters less a priori, so that the total decay stays the same;
                # a product matters less than a single parameter
                decay = np.full(owner.max() + 1, 2.0 / (owner.max() + 1))
                decay[:d] = 3.0 / d
                self.prior = np.log(np.append(decay, 0.01))
                self.params, self.fitted_at = self.prior, 0
                scale = np.exp(self.prior)[owner]
                # half a round: fewer members meet the slow tail of compile times, still unknown
                batch = [fresh[j] for j in representatives(points, max(workers // 2, 5), scale)]
            else:
                if (
                    len(pool) > self.candidate_limit
                ):  # too many to score: a random part and the best's neighbours
                    part = [fresh[i] for i in rng.permutation(len(fresh))[: self.candidate_limit]]
                    elite = [self.configs[i] for i in np.argsort(self.costs, kind="stable")[:4]]
                    near = [tuple(c) for e in elite for c in space.neighbors(e)]
                    fresh = list(dict.fromkeys(part + [c for c in near if c not in seen]))
                # while little is known, short calls: their slowest member costs less, and each tells the next
                # where to go; several rounds of the workers only once one round adds little knowledge
                known = max(1, workers // 4, n // 3)
                batch = self.propose(fresh, min(known, workers * max(1, n // (12 * workers))))
            before = evaluate.spent
            self.costs += list(evaluate(batch))
            rounds = -(-len(batch) // workers)
            self.took += [math.log(max(evaluate.spent - before, 1e-9) / rounds)] * len(batch)
            self.calls += [call] * len(batch)
            self.configs += batch
            seen.update(batch)
            call += 1

    def model_rows(self, z):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= self.model_size:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = self.model_size // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def propose(self, fresh, count):
        z = targets(self.costs)
        rows = self.model_rows(z)
        y = z[rows]
        points, owner = embed([self.configs[i] for i in rows], self.space)
        candidates, _ = embed(fresh, self.space)
        if len(z) >= 1.2 * self.fitted_at:
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

        # the most promising come first: where no value is left, ties go to them
        short = np.argsort(center - 2.0 * spread, kind="stable")[: self.shortlist]
        contenders = np.argsort((center - spread)[short], kind="stable")[: self.contenders]
        finalists, cross = candidates[short], cross[:, short]
        cov = variance * (kernel(finalists, finalists, scale) - cross.T @ cross)
        duration = expected_durations(
            points,
            np.array(self.calls)[rows],
            np.array(self.took)[rows],
            finalists,
            np.exp(self.prior)[owner],
        )

        means = np.repeat(center[short][:, None], self.fantasies, axis=1)
        best = np.full(self.fantasies, z.min())
        # equally likely sizes of a surprise: the quantiles of the half-normal distribution
        quantiles = ndtri(0.5 + 0.5 * (np.arange(self.fantasies) + 0.5) / self.fantasies)
        total, slowest, chosen = 0.0, 0.0, []
        for _ in range(min(count, len(short))):
            sizes = self.rng.permutation(quantiles)
            value, effect = foresee(means, cov, best, contenders, sizes)
            # the slowest member holds up the whole call, so it has to pay for all of them
            rate = (total + value) / np.maximum(slowest, duration)
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            chosen.append(j)
            total += value[j]
            slowest = max(slowest, duration[j])
            # imagine its result in every fantasy and learn from it
            surprise = sizes * self.rng.choice([-1.0, 1.0], self.fantasies)
            means = means + np.outer(effect[:, j], surprise)
            cov = cov - np.outer(effect[:, j], effect[:, j])
            best = np.minimum(best, means[j])
        return [fresh[short[j]] for j in chosen]
