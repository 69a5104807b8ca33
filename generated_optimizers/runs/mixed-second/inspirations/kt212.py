"""Local search in which a Gaussian process, not chance, chooses the next steps, each knowing the others."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

MAX_POOL = 20_000  # configurations to draw candidates from: all of them in most spaces


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
    gradient = np.append(by_weight, noise * np.trace(slope) / 2) + away / 2
    return value / 2 + away @ away / 4, gradient


class ModelGuidedLocalSearch:
    """Measure what a GP, which takes ordinals for smooth until shown otherwise, expects to gain most beyond the rest."""

    def __init__(self, start_samples=4, fit_points=160, candidates=1000, elite=8, batch_growth=2000, max_batch=64):
        self.start_samples, self.fit_points, self.candidates = start_samples, fit_points, candidates
        self.elite, self.batch_growth, self.max_batch = elite, batch_growth, max_batch

    def __call__(self, evaluate, space, rng):
        self.space, self.rng, self.pool = space, rng, space.sample(MAX_POOL)
        sizes, self.steps = np.array(space.cardinalities), np.arange(max(space.cardinalities))
        inside = self.steps < sizes[:, None]
        ordinal = np.array(space.ordinal)
        self.live = np.vstack([inside, inside & ordinal[:, None]])
        self.group = np.nonzero(self.live)[0]  # a weight for each parameter and kind of distance
        # Few samples share one of many ordinal values: at first, nearby values must speak for each other.
        unequal = -1.5 - ordinal * np.log(sizes) / 2
        self.prior = self.theta = np.hstack([unequal, -0.5 - np.log(sizes), -4.6])
        self.cost, self.log_time, width = {}, [], evaluate.parallel
        queue = space.sample(max(self.start_samples, width))
        while queue:
            chunk, before = queue[:width], evaluate.spent
            self.cost.update(zip(chunk, evaluate(chunk), strict=True))
            self.log_time += [np.log(evaluate.spent - before + 1e-9)] * len(chunk)
            batch = min(len(self.cost) ** 2 // self.batch_growth, self.max_batch)  # early results decide most
            queue = queue[width:] or self._choose(max(width, batch))

    def _choose(self, count):
        """New configurations of the highest expected improvement per time, given the earlier picks."""
        known, cost = list(self.cost), np.array(list(self.cost.values()))
        order, half = np.argsort(cost), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        near = [n for i in order[: self.elite] for n in self.space.neighbors(known[i])]
        limit = self.candidates // (1 + len(fit) // 64)  # the larger the model, the fewer: bounded work
        far = [self.pool[i] for i in self.rng.permutation(len(self.pool))[:limit]]
        new = [config for config in dict.fromkeys(near + far) if config not in self.cost]
        score = ndtri((np.searchsorted(np.sort(cost), cost) + 0.5) / len(cost))  # failures: worst
        y, log_time = (v[fit] - v.mean() for v in (score, np.array(self.log_time)))
        x = np.reshape([known[i] for i in fit] + new, (len(fit) + len(new), -1, 1))
        codes = np.hstack([x == self.steps, x > self.steps])[:, self.live]  # Hamming and L1 distance
        part = self.rng.permutation(len(y))[:half]  # enough to learn the weights from
        self.theta = minimize(misfit, self.theta, (self.prior, codes[part], self.group, y[part]),
                              jac=True, bounds=[(-8, 3)] * len(self.theta), options={"maxiter": 5}).x
        a, b = np.split(codes * np.exp(self.theta[self.group] / 2), [len(y)])
        cross, noise = kernel(a, b), np.exp(self.theta[-1])
        inverse = np.linalg.inv(kernel(a, a) + noise * np.eye(len(y)))
        solved = inverse @ cross
        mean, time = y @ solved, np.exp(log_time @ solved)
        variance = (1 + y @ inverse @ y) / (1 + len(y))
        unsure = 1 - (cross * solved).sum(0)  # share of the variance that is still unexplained
        chosen, rows, best = [], np.empty((0, len(new))), y.min()
        while len(chosen) < min(count, len(new)):
            spread = np.sqrt(variance * np.maximum(unsure, 1e-9))
            z = (best - mean) / spread
            gain = spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            gain[chosen] = -1
            pick = np.argmax(gain / time)  # believed to cost its mean: what it tells is known now
            shared = kernel(b[[pick]], b) - cross[:, pick] @ solved - rows[:, pick] @ rows
            rows = np.vstack([rows, shared / np.sqrt(unsure[pick] + noise)])
            unsure, best = unsure - rows[-1] ** 2, min(best, mean[pick])
            chosen.append(pick)
        return [new[i] for i in chosen]
