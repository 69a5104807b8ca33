import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri


def kernel(a, b):  # heavy-tailed: main effects reach far, and close neighbours still count most
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return 1 / (1 + np.maximum(squared, 0))


def misfit(theta, prior, codes, group, y):
    """Negative log posterior of the log weights and the log noise, with its gradient."""
    a, noise, away = codes * np.exp(theta[group] / 2), np.exp(theta[-1]), theta - prior
    k = kernel(a, a)
    gram = k + noise * np.eye(len(y))
    inverse = np.linalg.inv(gram)
    alpha = inverse @ y
    variance = (1 + y @ alpha) / (1 + len(y))
    slope = inverse - np.outer(alpha, alpha) / variance
    pull = slope * k * k
    by_column = ((pull @ a) * a).sum(0) - pull.sum(1) @ (a * a)
    by_weight = np.bincount(group, by_column, len(theta) - 1)
    value = (1 + len(y)) * np.log(variance) + np.linalg.slogdet(gram)[1]
    return value / 2 + away @ away / 4, np.append(by_weight, noise * np.trace(slope) / 2) + away / 2


def representatives(points, count):
    """Greedy design: each point explains most of what is unknown of all others, so extremes come late."""
    shared, chosen = kernel(points, points), []
    for _ in range(min(count, len(points))):
        value = (shared * shared).sum(0) / (np.diag(shared) + 0.01)
        value[chosen] = -1
        pick = np.argmax(value)
        shared = shared - np.outer(shared[pick], shared[pick]) / (shared[pick, pick] + 0.01)
        chosen.append(pick)
    return chosen


def durations(a, b, call, took):
    """Relative durations of b from those of whole calls: only a call's slowest member is held to its time."""
    similar, label = kernel(a, a), took
    smoother = np.linalg.inv(similar + np.eye(len(a)))
    for _ in range(5):
        weights = smoother @ (label - label.mean())
        belief, slowest = similar @ weights, np.full(call.max() + 1, -np.inf)
        np.maximum.at(slowest, call, belief)
        label = took + belief - slowest[call]
    return np.exp(weights @ kernel(a, b))


class ConditionedJointGain:
    """Start representatively, then fill growing calls with the highest joint gain per second under one GP of rank, speedup and success that is conditioned on every result between rare refits and doubts itself while it promises in vain."""

    def __init__(self, fit_points=160, candidates=2000, cells=100_000, elite=8, refit_share=8, longest_gap=100):
        self.fit_points, self.candidates, self.cells = fit_points, candidates, cells
        self.elite, self.refit_share, self.longest_gap = elite, refit_share, longest_gap

    def __call__(self, evaluate, space, rng):
        self.space, self.rng, self.pool, width = space, rng, space.sample(20_000), evaluate.parallel
        sizes, ordinal, self.tables, group = np.array(space.cardinalities), np.array(space.ordinal), [], []
        for i, size in enumerate(sizes):  # squared distances are Hamming and, along ordinals, L1 as well
            steps = np.arange(size)
            equal, above = steps[:, None] == steps, steps[:, None] > steps
            self.tables.append(np.hstack([equal, above]) if ordinal[i] else equal)
            group += [i] * int(size) + [len(sizes) + i] * int(size * ordinal[i])
        self.group = np.array(group)  # a weight for each parameter and kind of distance
        # Few samples share one of many ordinal values: at first, nearby values must speak for each other.
        unequal = -1.5 - ordinal * np.log(sizes) / 2
        self.prior = self.theta = np.hstack([unequal, -0.5 - np.log(sizes), -4.6])
        self.plain = np.exp(self.prior[self.group] / 2)
        self.cost, self.log_time, self.calls = {}, [], []
        start = space.sample(500)
        # half a round: fewer members meet the slow tail of compile times, still unknown
        first = [start[i] for i in representatives(self._codes(start) * self.plain, max(4, width // 2))]
        for i in range(0, len(first), width):
            self._measure(evaluate, first[i:i + width])
        best_at, refit_at, improved = len(self.cost), 0, False
        while True:
            n, best = len(self.cost), min(self.cost.values())
            if improved or n >= refit_at or not self.open.any():
                if not self._refit():
                    return  # everything has been visited
                refit_at = n + min(max(1, n // self.refit_share), self.longest_gap)
            # Early results decide most: short calls first. Promises in vain: too sure of itself, so widen.
            picks = self._choose(min(width, max(1, width // 4, n // 3)), 2 - best_at / n)
            found = self._measure(evaluate, [self.new[pick] for pick, _ in picks])
            for (pick, reach), target in zip(picks, (self._targets(found) - self.level).T):
                self.mean += np.outer(target - self.mean[:, pick], reach)
            improved = found.min() < best
            best_at = len(self.cost) if improved else best_at

    def _measure(self, evaluate, configs):
        before = evaluate.spent
        found = evaluate(configs)
        self.cost.update(zip(configs, found))
        self.log_time += [np.log(max(evaluate.spent - before, 1e-9))] * len(configs)
        self.calls += [len(self.calls)] * len(configs)
        return np.array(found, float)

    def _codes(self, configs):
        return np.hstack([table[column] for table, column in zip(self.tables, np.array(configs).T)])

    def _targets(self, cost):
        """Rank, slowness, success: ranks resist heavy tails, speedups tell how much there is to gain."""
        works, speed = np.isfinite(cost), 1 / self.ranked
        rank = ndtri((np.searchsorted(self.ranked, cost) + 0.5) / (len(self.ranked) + 1))
        slowness = (speed.mean() - 1 / cost) / max(speed.std(), 0.01 * speed.mean())
        # A failure is rather slow only, for fast ones often lie beside it; success is a target of its own.
        return np.vstack([np.where(works, [rank, slowness], 1.0), works])

    def _refit(self):
        """Learn the weights anew and predict a fresh set of candidates; False if none is left."""
        known, cost = list(self.cost), np.array(list(self.cost.values()), float)
        order, half = np.argsort(cost, kind="stable"), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        near = [c for i in order[: self.elite] for c in self.space.neighbors(known[i])]
        limit = min(self.candidates, self.cells // len(fit))  # the larger the model, the fewer: bounded work
        far = [self.pool[i] for i in self.rng.permutation(len(self.pool))[:limit]]
        new = [c for c in dict.fromkeys(near + far) if c not in self.cost]
        self.new = new or [c for c in self.pool if c not in self.cost]
        if not self.new:
            return False
        works = np.isfinite(cost)
        self.ranked = np.sort(cost[works]) if works.any() else np.ones(1)
        targets = self._targets(cost)
        self.level = targets.mean(1, keepdims=True)
        values = (targets - self.level)[:, fit]
        codes = self._codes([known[i] for i in fit] + self.new)
        took, call = np.array(self.log_time)[fit], np.array(self.calls)[fit]
        self.time = durations(*np.split(codes * self.plain, [len(fit)]), call, took)  # not the costs' weights
        part = self.rng.permutation(len(fit))[:half]  # enough to learn the weights from, by robust ranks
        self.theta = minimize(misfit, self.theta, (self.prior, codes[part], self.group, values[0, part]),
                              jac=True, bounds=[(-8, 3)] * len(self.theta), options={"maxiter": 8}).x
        a, self.b = np.split(codes * np.exp(self.theta[self.group] / 2), [len(fit)])
        self.noise, self.cross, y = np.exp(self.theta[-1]), kernel(a, self.b), values[:2].mean(0)
        inverse = np.linalg.inv(kernel(a, a) + self.noise * np.eye(len(fit)))
        self.solved = inverse @ self.cross
        self.mean, self.best = values @ self.solved, y.min()
        self.variance = (1 + y @ inverse @ y) / (1 + len(y))
        self.unsure = 1 - (self.cross * self.solved).sum(0)  # share of the variance still unexplained
        self.rows, self.open = np.empty((0, len(self.new))), np.ones(len(self.new), bool)
        return True

    def _choose(self, count, doubt):
        """The call of the highest joint gain per second: its members, and how their results reach all others."""
        picks, total, slowest, best = [], 0.0, 0.0, self.best
        mean, success = self.mean[:2].mean(0), np.clip(self.level[2] + self.mean[2], 0.05, 1)
        while len(picks) < count and self.open.any():
            spread = doubt * np.sqrt(self.variance * np.maximum(self.unsure, 1e-9))
            z = (best - mean) / spread
            gain = success * spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            rate = (total + gain) / np.maximum(slowest, self.time)  # the slowest member holds up all others
            pick = np.argmax(np.where(self.open, rate, -np.inf))
            total, slowest = total + gain[pick], max(slowest, self.time[pick])
            shared = kernel(self.b[[pick]], self.b)[0] - self.cross[:, pick] @ self.solved
            deviation = np.sqrt(max(self.unsure[pick], 0) + self.noise)
            row = (shared - self.rows[:, pick] @ self.rows) / deviation
            self.rows = np.vstack([self.rows, row])
            # until its result is in, a pick is believed to cost its mean: what it tells is known now
            self.unsure, best = self.unsure - row ** 2, min(best, mean[pick])
            self.open[pick] = False
            picks.append((pick, row / deviation))
        return picks
