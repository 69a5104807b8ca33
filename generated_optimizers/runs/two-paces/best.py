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
    """Choose what, per second, most lowers the sum of the best cost expected and of the best cost the model will
    then be able to name: side by side, growing calls are filled against imagined results and pay for their
    slowest member; one by one, every real result at once conditions the shortlist, until a new best renews it."""

    def __init__(
        self, model_size=160, candidate_limit=2500, shortlist=200, contenders=24, fantasies=32
    ):
        self.model_size = model_size
        self.candidate_limit = candidate_limit
        self.shortlist = shortlist
        self.contenders = contenders
        self.fantasies = fantasies

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.space, self.rng = evaluate, space, rng
        self.configs, self.costs, self.calls, self.took = [], [], [], []
        d = len(space.cardinalities)
        # more parameters: each matters less a priori, so that the total decay stays the same
        self.prior = np.append(np.full(d, math.log(3.0 / d)), math.log(0.01))
        self.params, self.fitted_at = self.prior, 0
        workers = self.workers = max(1, evaluate.parallel)
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        while True:
            seen = set(self.configs)
            fresh = [c for c in pool if c not in seen]
            if not fresh:
                return
            n = len(self.configs)
            if n == 0:
                fresh = [fresh[i] for i in rng.permutation(len(fresh))[:800]]
                points, owner = embed(fresh, space)
                scale = np.exp(self.prior)[owner]
                # half a round: fewer members meet the slow tail of compile times, still unknown
                batch = [fresh[j] for j in representatives(points, max(workers // 2, 5), scale)]
                for members in [batch] if workers > 1 else [[c] for c in batch]:
                    self.measure(members)
            else:
                if (
                    len(pool) > self.candidate_limit
                ):  # too many to score: a random part and the best's neighbours
                    part = [fresh[i] for i in rng.permutation(len(fresh))[: self.candidate_limit]]
                    elite = [self.configs[i] for i in np.argsort(self.costs, kind="stable")[:4]]
                    near = [tuple(c) for e in elite for c in space.neighbors(e)]
                    fresh = list(dict.fromkeys(part + [c for c in near if c not in seen]))
                if workers > 1:
                    # while little is known, short calls: their slowest member costs less, and each tells the next
                    # where to go; several rounds of the workers only once one round adds little knowledge
                    known = max(1, workers // 4, n // 3)
                    count = min(known, workers * max(1, n // (12 * workers)))
                else:
                    # the shortlist learns from every result, so it serves for many before it is renewed
                    count = min(max(1, n // 6), self.shortlist // 2)
                self.advance(fresh, count)

    def measure(self, batch):
        before = self.evaluate.spent
        self.costs += list(self.evaluate(batch))
        rounds = -(-len(batch) // self.workers)
        self.took += [math.log(max(self.evaluate.spent - before, 1e-9) / rounds)] * len(batch)
        self.calls += [len(self.configs)] * len(batch)  # a call is named by its first member
        self.configs += batch

    def model_rows(self, z):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= self.model_size:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = self.model_size // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def advance(self, fresh, count):
        z = targets(self.costs)
        order = np.argsort(self.costs, kind="stable")
        ladder = np.asarray(self.costs, dtype=float)[order], z[order]
        rows = self.model_rows(z)
        y = z[rows]
        points, owner = embed([self.configs[i] for i in rows], self.space)
        candidates, _ = embed(fresh, self.space)
        if len(z) >= 1.2 * self.fitted_at and self.fitted_at < self.model_size:
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

        # few fantasies suffice where results are real, or where so much is known that they hardly differ
        imagining = self.workers > 1 and len(z) <= self.model_size
        draws = self.fantasies if imagining else self.fantasies // 4
        means = np.repeat(center[short][:, None], draws, axis=1)
        best = np.full(draws, z.min())
        # equally likely sizes of a surprise: the quantiles of the half-normal distribution
        quantiles = ndtri(0.5 + 0.5 * (np.arange(draws) + 0.5) / draws)
        total, slowest, chosen = 0.0, 0.0, []
        for _ in range(min(count, len(short))):
            sizes = self.rng.permutation(quantiles)
            value, effect = foresee(means, cov, best, contenders, sizes)
            # the slowest member holds up the whole call, so it has to pay for all of them;
            # one by one, nothing is carried over and each pays for itself
            rate = (total + value) / np.maximum(slowest, duration)
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            chosen.append(j)
            tell = effect[:, j]
            if self.workers > 1:
                total += value[j]
                slowest = max(slowest, duration[j])
                # imagine its result in every fantasy and learn from it
                surprise = sizes * self.rng.choice([-1.0, 1.0], draws)
                best = np.minimum(best, means[j] + tell[j] * surprise)
            else:
                self.measure([fresh[short[j]]])
                if self.costs[-1] < ladder[0][0]:
                    return  # a new best: other candidates and another scale matter now
                # the real result, on the scale of the model, tells of the others what the noise leaves
                blur = math.sqrt(tell[j] ** 2 + noise * variance)
                surprise = (np.interp(self.costs[-1], *ladder) - means[j]) / blur
                tell = tell * (tell[j] / blur)
            means = means + np.outer(tell, surprise)
            cov = cov - np.outer(tell, tell)
            if self.workers == 1:  # what has been measured can no longer be named
                bound = means[:, 0] - np.sqrt(np.maximum(np.diag(cov), 0.0))
                bound[chosen] = np.inf
                contenders = np.argsort(bound, kind="stable")[: self.contenders]
        if self.workers > 1:
            self.measure([fresh[short[j]] for j in chosen])
