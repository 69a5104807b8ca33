"""Least-bump search: look where a cost below the best would contradict the measurements least."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri

MAX_POOL = 20_000  # configurations to draw candidates from: all of them in most spaces


def kernel(a, b):  # heavy-tailed: main effects reach far, and close neighbours still count most
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return 1 / (1 + np.maximum(squared, 0))


def misfit(theta, prior, codes, group, y):
    """How badly log weights and log ridge explain the costs, with the gradient."""
    a, ridge, away = codes * np.exp(theta[group] / 2), np.exp(theta[-1]), theta - prior
    k = kernel(a, a)
    gram = k + ridge * np.eye(len(y))
    inverse = np.linalg.inv(gram)
    alpha = inverse @ y
    scale = (1 + y @ alpha) / (1 + len(y))
    slope = inverse - np.outer(alpha, alpha) / scale
    pull = slope * k * k
    by_column = ((pull @ a) * a).sum(0) - pull.sum(1) @ (a * a)
    by_weight = np.bincount(group, by_column, len(theta) - 1)
    value = (1 + len(y)) * np.log(scale) + np.linalg.slogdet(gram)[1]
    gradient = np.append(by_weight, ridge * np.trace(slope) / 2) + away / 2
    return value / 2 + away @ away / 4, gradient


class LeastBumpSearch:
    """Measure where reaching a target below the best would bend the smoothest interpolant least."""

    def __init__(self, start_samples=8, fit_points=256, candidates=2000, elite=8, refit_share=24,
                 shallow=0.05, deep=0.8):
        self.start_samples, self.fit_points = start_samples, fit_points
        self.candidates, self.elite, self.refit_share = candidates, elite, refit_share
        self.shallow, self.deep = shallow, deep  # how far below the best the targets lie

    def __call__(self, evaluate, space, rng):
        self.space, self.rng, self.pool = space, rng, space.sample(MAX_POOL)
        sizes, self.steps = np.array(space.cardinalities), np.arange(max(space.cardinalities))
        inside = self.steps < sizes[:, None]
        self.live = np.vstack([inside, inside & np.array(space.ordinal)[:, None]])
        self.group = np.nonzero(self.live)[0]  # a weight for each parameter and kind of distance
        self.prior = self.theta = np.hstack([np.full(len(sizes), -1.5), -1.5 - np.log(sizes), -4.6])
        self.cost, self.log_time, width = {}, [], evaluate.parallel
        queue = space.sample(max(self.start_samples, width))
        while queue:
            chunk, before = queue[:width], evaluate.spent
            self.cost.update(zip(chunk, evaluate(chunk), strict=True))
            self.log_time += [np.log(evaluate.spent - before + 1e-9)] * len(chunk)
            queue = queue[width:] or self._choose(max(width, len(self.cost) // self.refit_share))

    def _choose(self, count):
        """Interpolate the scores of the costs, and find the least contradicted new best ones."""
        known, cost = list(self.cost), np.array(list(self.cost.values()))
        order, half = np.argsort(cost), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        near = [n for i in order[: self.elite] for n in self.space.neighbors(known[i])]
        far = [self.pool[i] for i in self.rng.permutation(len(self.pool))[: self.candidates]]
        new = [config for config in dict.fromkeys(near + far) if config not in self.cost]
        score = ndtri((np.searchsorted(np.sort(cost), cost) + 0.5) / len(cost))  # failures: worst
        y, log_time = (v[fit] - v.mean() for v in (score, np.array(self.log_time)))
        x = np.reshape([known[i] for i in fit] + new, (len(fit) + len(new), -1, 1))
        codes = np.hstack([x == self.steps, x > self.steps])[:, self.live]  # Hamming and L1 distance
        self.theta = minimize(misfit, self.theta, (self.prior, codes[: len(y)], self.group, y),
                              jac=True, bounds=[(-8, 3)] * len(self.theta), options={"maxiter": 5}).x
        a, b = np.split(codes * np.exp(self.theta[self.group] / 2), [len(y)])
        ridge = np.exp(self.theta[-1])
        inverse = np.linalg.inv(kernel(a, a) + ridge * np.eye(len(y)))
        cross = kernel(a, b)
        solved = inverse @ cross
        scale = (1 + y @ inverse @ y) / (1 + len(y))  # squared norm of the interpolant per point
        chosen = self._least_bumps(count, b, cross, solved, y, scale, log_time @ solved, ridge)
        return [new[i] for i in chosen]

    def _least_bumps(self, count, b, cross, solved, y, scale, slow, ridge):
        """Candidates that reach their targets with the least added norm and predicted time."""
        smooth, freedom = y @ solved, 1 - (cross * solved).sum(0)
        floor = smooth.min(initial=y.min())  # a target must lie below the interpolant as well
        # Shallow targets refine what is known to be good, deep ones ask for unknown ground:
        # every batch holds the whole range, and single steps wander through it.
        share = (np.arange(count) + self.rng.random(count)) / count
        depths = self.shallow * (self.deep / self.shallow) ** share
        chosen, rows = [], np.zeros((count, len(b)))
        for i, depth in enumerate(depths[: len(b)]):
            bump = (smooth - floor + depth) ** 2 / (2 * scale * np.maximum(freedom, 1e-9))
            price = bump + slow  # both are logarithms: of implausibility and of time
            price[chosen] = np.inf
            pick = int(np.argmin(price))
            chosen.append(pick)
            # Take the member as measured where the interpolant has it: what resembles it is
            # pinned down too, and a target there would bend the interpolant more.
            shared = kernel(b[pick : pick + 1], b)[0] - cross[:, pick] @ solved
            shared = shared - rows[:, pick] @ rows
            rows[i] = shared / np.sqrt(shared[pick] + ridge)
            freedom = freedom - rows[i] ** 2
        return chosen
