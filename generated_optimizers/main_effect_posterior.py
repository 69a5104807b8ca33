import math
from itertools import combinations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import ndtr


def embed(pool, space):
    """Coordinates and the owner of each: first the parameters, then the products of two sizes."""
    columns, owner, sizes = [], [], []
    for i, values in enumerate(space.values):
        index = pool[:, i]
        if not space.ordinal[i]:
            columns += [0.5 * (index == k) for k in range(len(values))]
            owner += [i] * len(values)
            continue
        is_size = len(values) > 2 and min(values) > 0  # rather than a switch
        level = np.log(np.array(values, dtype=float)) if is_size else np.arange(len(values))
        columns.append((level - level.min())[index] / max(np.ptp(level), 1e-9))
        owner.append(i)
        if is_size:
            sizes.append(level[index])
    # threads in a block, area of a tile: products act of their own, whatever their factors are
    for j, (a, b) in enumerate(combinations(sizes, 2)):
        columns.append((a + b) / max(np.ptp(a + b), 1e-9))
        owner.append(len(space.values) + j)
    return np.column_stack(columns), np.array(owner)


def similarity(distance, reach):
    """Half main effects, half interactions; reach is the sum of the rates, the longest distance there can be."""
    # no owner spans more than 1, so the line is the sum of one triangular kernel for each of them: positive
    # definite, and unlike the exponential it still tells something of what differs in most parameters
    return 0.5 * (1.0 - distance / reach + np.exp(-distance))


def kernel(a, b, reach):
    return similarity(cdist(a, b, "cityblock"), reach)


def representatives(points, count, reach):
    """Greedy design: each point removes the most prior variance from all others."""
    cov, chosen = kernel(points, points, reach), []
    for _ in range(min(count, len(points))):
        variance = np.diag(cov) + 0.01
        value = (cov**2).sum(axis=0) / variance
        value[chosen] = -1.0
        j = int(np.argmax(value))
        chosen.append(j)
        cov = cov - np.outer(cov[:, j], cov[j]) / variance[j]
    return chosen


def targets(costs):
    """Log costs, -1 at the best and 0 at the median; the slow half is compressed; 0 for failures."""
    z, finite = np.zeros(len(costs)), np.isfinite(costs)
    if finite.any():
        logs = np.log(np.maximum(costs[finite], 1e-12))
        gaps = logs - np.median(logs)
        gaps = gaps / max(-gaps.min(), 1e-3)
        z[finite] = np.where(gaps > 0, np.log1p(np.maximum(gaps, 0.0)), gaps)
    return z


def score_steps(params, prior, points, owner, y):
    """Two steps of Fisher scoring towards the most probable log decay rates and log noise."""
    n, count = len(y), len(prior)
    groups = [points[:, owner == i] for i in range(count - 1)]
    spans = np.array([cdist(g, g, "cityblock") for g in groups])
    for _ in range(2):
        rates, noise = np.exp(params[:-1]), math.exp(params[-1]) * np.eye(n)
        reach, distance = rates.sum(), np.tensordot(rates, spans, 1)
        signal = similarity(distance, reach)
        steepness = spans * (np.exp(-distance) + 1.0 / reach) - distance / reach**2
        slopes = np.concatenate([-0.5 * rates[:, None, None] * steepness, noise[None]])
        inverse = np.linalg.inv(signal + noise)
        ones = inverse.sum(axis=0)
        residual = y - ones @ y / ones.sum()
        alpha = inverse @ residual
        pull = (n + 1) / (residual @ alpha + 1.0) * (alpha @ slopes @ alpha)
        turned = inverse @ slopes
        trace = np.trace(turned, axis1=1, axis2=2)
        gradient = 0.5 * (trace - pull) + params - prior
        products = turned.reshape(count, -1) @ turned.transpose(0, 2, 1).reshape(count, -1).T
        # the second term: the common variance is not known either
        information = 0.5 * (products - np.outer(trace, trace) / n) + np.eye(count)
        step = np.clip(np.linalg.solve(information, gradient), -1.0, 1.0)
        params = np.clip(params - step, prior - 3.0, prior + 3.0)
    return params


def expected_durations(near, took, call):
    """Single durations from those of calls: only the member believed slowest is held to its call's time."""
    similar = near[:, : len(took)]
    smoother = np.linalg.inv(similar + np.eye(len(took)))
    label = took
    for _ in range(4):
        mean = label.mean()
        weights = smoother @ (label - mean)
        belief = mean + similar @ weights
        slowest = np.full(call.max() + 1, -np.inf)
        np.maximum.at(slowest, call, belief)
        label = took + belief - slowest[call]
    return np.exp(mean + weights @ near)


class MainEffectPosterior:
    """Score every configuration with an exact posterior whose prior is half main effects and half interactions, both
    read from one distance, so that the first few results already tell about configurations unlike them; it grows by
    one row for each configuration chosen, and growing calls take what promises most improvement per second."""

    def __init__(self, keep=200, candidates=2000, fitted=64, growth=1.4):
        self.keep = keep
        self.candidates = candidates
        self.fitted = fitted
        self.growth = growth

    def __call__(self, evaluate, space, rng):
        self.rng, self.pool = rng, space.pool(20000)
        self.points, self.owner = embed(self.pool, space)
        self.workers = max(1, evaluate.parallel)
        # the total decay is the same for any number of parameters; a product matters less than a parameter
        owners, parameters = self.owner.max() + 1, len(space.values)
        decay = np.full(owners, 2.0 / owners)
        decay[:parameters] = 3.0 / parameters
        self.prior = self.params = np.log(np.append(decay, 0.01))
        self.cost = np.full(len(self.pool), np.nan)
        self.took = np.zeros(len(self.pool))
        self.call = np.zeros(len(self.pool), dtype=int)
        self.rows, self.due, calls = np.zeros(0, dtype=int), 0, 0
        some = rng.permutation(len(self.pool))[:250]
        scaled = self.points[some] * decay[self.owner]
        batch = some[representatives(scaled, max(self.workers // 2, 5), decay.sum())]
        while True:
            before = evaluate.spent
            self.cost[batch] = evaluate(self.pool[batch])
            rounds = -(-len(batch) // self.workers)
            self.took[batch] = math.log(max(evaluate.spent - before, 1e-9) / rounds)
            self.call[batch] = calls
            calls += 1
            self.rows = np.append(self.rows, batch)
            if len(self.rows) >= self.due or not self.free.any():
                unseen = np.flatnonzero(np.isnan(self.cost))
                if len(unseen) == 0:
                    return
                self.rebuild(unseen)
            # while little is known, short calls: each tells the next where to go
            batch = self.choose(
                min(self.workers, max(1, len(self.rows) // 2), int(self.free.sum()))
            )

    def rebuild(self, unseen):
        """Refit the weights and compute the posterior anew; bound both its rows and its columns."""
        rows = self.rows[np.argsort(self.cost[self.rows], kind="stable")]
        if len(rows) > self.keep:
            half = self.keep // 2
            rows = np.append(rows[:half], self.rng.choice(rows[half:], half, replace=False))
        if len(unseen) > self.candidates:  # the neighbours of the best and a random part
            steps = (self.pool[unseen][:, None] != self.pool[rows[:4]]).sum(axis=2).min(axis=1)
            order = np.argsort((steps > 1) + self.rng.random(len(unseen)))
            unseen = unseen[order[: self.candidates]]
        sound = rows[np.isfinite(self.cost[rows])]
        few = sound[np.linspace(0, len(sound) - 1, min(len(sound), self.fitted)).astype(int)]
        if len(few) > 3:
            y = targets(self.cost[few])
            self.params = score_steps(self.params, self.prior, self.points[few], self.owner, y)

        n = len(rows)
        self.rows, self.active = rows, np.append(rows, unseen)
        self.due = int(self.growth * n) + 1
        rates, self.noise = np.exp(self.params[:-1]), math.exp(self.params[-1])
        self.scaled, self.reach = self.points[self.active] * rates[self.owner], rates.sum()
        near = kernel(self.scaled[:n], self.scaled, self.reach)
        room = self.due + self.workers
        self.root, self.basis = np.zeros((room, room)), np.empty((room, len(self.active)))
        self.root[:n, :n] = np.linalg.cholesky(near[:, :n] + self.noise * np.eye(n))
        self.basis[:n] = solve_triangular(self.root[:n, :n], near, lower=True)
        self.left = 1.0 - (self.basis[:n] ** 2).sum(axis=0)  # share of the variance
        self.free = np.arange(len(self.active)) >= n
        self.duration = expected_durations(near, self.took[rows], self.call[rows])

    def choose(self, count):
        n, costs = len(self.rows), self.cost[self.rows]
        root, y, failed = self.root[:n, :n], targets(costs), ~np.isfinite(costs)
        if failed.any() and not failed.all():
            # failures say nothing about times: they get what the others predict for them
            cov = root @ root.T
            weights = np.linalg.solve(cov[np.ix_(~failed, ~failed)], y[~failed])
            y[failed] = cov[np.ix_(failed, ~failed)] @ weights
        white = solve_triangular(root, np.column_stack([np.ones(n), y, failed]), lower=True)
        ones, white = white[:, :1], white[:, 1:]
        mean = ones.T @ white / (ones.T @ ones)
        white = white - ones @ mean
        center, failing = mean.T + white.T @ self.basis[:n]
        variance = (white[:, 0] @ white[:, 0] + 1.0) / (n + 1)
        success = np.clip(1.0 - failing, 0.05, 1.0)
        best = y[~failed].min(initial=0.0)

        total, slowest, picked = 0.0, 0.0, []
        for k in range(n, n + count):
            spread = np.sqrt(variance * np.maximum(self.left, 1e-9))
            margin = (best - center) / spread
            density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
            value = success * spread * np.maximum(margin * ndtr(margin) + density, 0.0)
            # the slowest member holds up the whole call, so it has to pay for all of them
            rate = (total + value) / np.maximum(slowest, self.duration)
            j = int(np.argmax(np.where(self.free, rate, -1.0)))
            picked.append(j)
            self.free[j] = False
            total += value[j]
            slowest = max(slowest, self.duration[j])
            # its row needs no result: the other members of the call already know it is measured
            pivot, bridge = math.sqrt(max(self.left[j], 0.0) + self.noise), self.basis[:k, j]
            row = (
                kernel(self.scaled[j : j + 1], self.scaled, self.reach)[0] - bridge @ self.basis[:k]
            )
            self.root[k, :k], self.root[k, k] = bridge, pivot
            self.basis[k] = row / pivot
            self.left = self.left - self.basis[k] ** 2
        return self.active[picked]
