import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist


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


class SizedCallPortfolio:
    """Choose the members and the size of each call together, as the portfolio with the greatest expected
    improvement (over joint draws of a Gaussian process) per second of compiling and benchmarking."""

    def __init__(self, model_size=300, candidate_limit=2500, shortlist=300, draws=400):
        self.model_size = model_size
        self.candidate_limit = candidate_limit
        self.shortlist = shortlist
        self.draws = draws

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.configs, self.costs, self.calls, self.spans = [], [], [], []
        d = len(space.cardinalities)
        # more parameters: each matters less a priori, so that the total decay stays the same
        self.prior = np.append(np.full(d, math.log(3.0 / d)), math.log(0.01))
        self.params, self.fitted_at = self.prior, 0
        workers = max(1, evaluate.parallel)
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        seen = set()
        while True:
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
            else:
                if len(pool) > self.candidate_limit:  # too many to score: a random part and the best's neighbours
                    part = [fresh[i] for i in rng.permutation(len(fresh))[:self.candidate_limit]]
                    elite = [self.configs[i] for i in np.argsort(self.costs, kind="stable")[:4]]
                    near = [tuple(c) for e in elite for c in space.neighbors(e)]
                    fresh = list(dict.fromkeys(part + [c for c in near if c not in seen]))
                # at least a few per cent of what is known: less would hardly change the model
                batch = self.propose(fresh, max(1, workers // 4, n // 24), workers)
            before = evaluate.spent
            self.costs += list(evaluate(batch))
            self.calls += [len(self.spans)] * len(batch)
            self.spans.append(max(evaluate.spent - before, 1e-9))
            self.configs += batch
            seen.update(batch)

    def model_rows(self, z):
        """All evaluations, or, where they are too many, the best and a random part of the others."""
        if len(z) <= self.model_size:
            return np.arange(len(z))
        order = np.argsort(z, kind="stable")
        half = self.model_size // 2
        return np.concatenate([order[:half], self.rng.choice(order[half:], half, replace=False)])

    def split_times(self, workers):
        """Time of one benchmark, and of each call's slowest compilation (per round of the workers)."""
        spans = np.array(self.spans)
        measured = np.maximum(np.bincount(self.calls, weights=np.isfinite(self.costs)), 1.0)
        # the least time per member is an upper bound; half of it leaves the other half to compilation
        benchmark = 0.5 * (spans / measured).min()
        return benchmark, (spans - benchmark * measured) / np.ceil(np.bincount(self.calls) / workers)

    def propose(self, fresh, least, workers):
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
        spread = np.sqrt(variance * np.maximum(1.0 - (cross ** 2).sum(axis=0), 1e-9))
        bound = center - 2.0 * spread
        short = np.argsort(bound, kind="stable")[:self.shortlist]

        # joint draws over the most promising ones: they know which candidates would tell the same
        finalists, cross, bound = candidates[short], cross[:, short], bound[short]
        cov = kernel(finalists, finalists, scale) - cross.T @ cross + 1e-6 * np.eye(len(short))
        noise_draws = self.rng.standard_normal((len(short), self.draws))
        draws = center[short][:, None] + np.linalg.cholesky(variance * cov) @ noise_draws
        benchmark, compiling = self.split_times(workers)
        call = np.array(self.calls)[rows]
        duration = expected_durations(points, call, np.log(compiling)[call], finalists, np.exp(self.prior)[owner])

        # where no draw improves any more, the lower bound decides, and sends the search to unknown regions
        fallback = 1e-5 * (bound.max() - bound)
        best = np.full(self.draws, z.min())
        total, slowest, pace, chosen = 0.0, 0.0, 0.0, []
        for size in range(1, min(max(workers, least), len(short)) + 1):
            gain = np.maximum(best - draws, 0.0).mean(axis=1) + fallback
            # the slowest member holds up the whole call, so it has to pay for all of them
            rounds = -(-size // workers)
            rate = (total + gain) / (rounds * np.maximum(slowest, duration) + size * benchmark)
            rate[chosen] = -1.0
            j = int(np.argmax(rate))
            if size > least and rate[j] < pace:
                break  # one more benchmark costs more than it brings: better learn from these first
            pace = rate[j]
            chosen.append(j)
            total += gain[j]
            slowest = max(slowest, duration[j])
            best = np.minimum(best, draws[j])
        return [fresh[short[j]] for j in chosen]
