"""Local search in which a Gaussian process chooses every step and learns from every result, at bounded work."""

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


def expected_gain(best, mean, variance):
    spread = np.sqrt(np.maximum(variance, 1e-9))
    z = (best - mean) / spread
    return spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


class ConditionedLocalSearch:
    """Between rare, bounded refits, a GP's posterior over a short list is conditioned exactly on every result."""

    def __init__(
        self,
        start_samples=5,
        fit_points=200,
        learn_points=100,
        candidates=1000,
        elite=8,
        shortlist=256,
        refit_share=8,
    ):
        self.start_samples, self.fit_points, self.learn_points = (
            start_samples,
            fit_points,
            learn_points,
        )
        self.candidates, self.elite = candidates, elite
        self.shortlist, self.refit_share = shortlist, refit_share

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.space, self.rng, pool = evaluate, space, rng, space.sample(MAX_POOL)
        self.pool = [pool[i] for i in rng.permutation(len(pool))]
        sizes, ordinal = np.array(space.cardinalities), np.array(space.ordinal)
        self.steps = np.arange(sizes.max())
        inside = self.steps < sizes[:, None]
        self.live = np.vstack([inside, inside & ordinal[:, None]])
        self.group = np.nonzero(self.live)[0]  # a weight for each parameter and kind of distance
        # Few results tell about many values only if order matters: half an ordinal effect is gradual.
        self.prior = self.theta = np.hstack(
            [np.where(ordinal, -2.2, -1.5), -0.5 - np.log(sizes), -4.6]
        )
        self.cost, self.log_time, self.width = {}, [], evaluate.parallel
        start = self.pool[: max(self.start_samples, self.width)]
        for i in range(0, len(start), self.width):
            self._measure(start[i : i + self.width])
        while self.pool:
            self._round()

    def _measure(self, configs):
        before, costs = self.evaluate.spent, self.evaluate(configs)
        self.cost.update(zip(configs, costs, strict=True))
        self.log_time += [np.log(self.evaluate.spent - before + 1e-9)] * len(configs)
        return costs

    def _round(self):
        """Refit, then measure what promises most until the best moves or the data have grown by a share."""
        known, cost = list(self.cost), np.array(list(self.cost.values()))
        order, half = np.argsort(cost), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        near = [n for i in order[: self.elite] for n in self.space.neighbors(known[i])]
        far = [config for config in self.pool[: self.candidates] if config not in self.cost]
        self.pool = self.pool[self.candidates :] + far  # every configuration gets its turn
        new = [config for config in dict.fromkeys(near + far) if config not in self.cost]
        if not new:
            return
        ranked, log_time = np.sort(cost), np.array(self.log_time)
        score = lambda c: ndtri(
            (np.searchsorted(ranked, c) + 0.5) / (len(ranked) + 1)
        )  # failures: worst
        centre = score(cost).mean()
        y, log_time = score(cost[fit]) - centre, log_time[fit] - log_time.mean()
        x = np.reshape([known[i] for i in fit] + new, (len(fit) + len(new), -1, 1))
        codes = np.hstack([x == self.steps, x > self.steps])[
            :, self.live
        ]  # Hamming and L1 distance
        learn = self.rng.permutation(len(y))[
            : self.learn_points
        ]  # weights need fewer points than means
        self.theta = minimize(
            misfit,
            self.theta,
            (self.prior, codes[learn], self.group, y[learn]),
            jac=True,
            bounds=[(-8, 3)] * len(self.theta),
            options={"maxiter": 5},
        ).x
        a, b = np.split(codes * np.exp(self.theta[self.group] / 2), [len(y)])
        cross, noise = kernel(a, b), np.exp(self.theta[-1])
        inverse = np.linalg.inv(kernel(a, a) + noise * np.eye(len(y)))
        solved, variance = inverse @ cross, (1 + y @ inverse @ y) / (1 + len(y))
        mean, time, best = y @ solved, np.exp(log_time @ solved), y.min()
        unsure = variance * (1 - (cross * solved).sum(0))
        short = np.argsort(-expected_gain(best, mean, unsure) / time)[: self.shortlist]
        mean, time, noise, left = (
            mean[short],
            time[short],
            noise * variance,
            np.ones(len(short), bool),
        )
        cov = variance * (kernel(b[short], b[short]) - cross[:, short].T @ solved[:, short])
        for _ in range(0, max(1, len(cost) // self.refit_share), self.width):
            picks = []
            for _ in range(min(self.width, left.sum())):
                gain = expected_gain(best, mean, cov.diagonal()) / time
                pick = np.argmax(np.where(left, gain, -1))
                pull = cov[pick] / (cov[pick, pick] + noise)
                cov = cov - np.outer(
                    pull, cov[pick]
                )  # what it leaves unsure does not depend on its cost
                left[pick] = False
                picks.append((pick, pull))
            if not picks:
                return
            costs = self._measure([new[short[pick]] for pick, _ in picks])
            for (pick, pull), result in zip(picks, costs):
                mean = mean + pull * (score(result) - centre - mean[pick])
            if min(costs) < ranked[0]:  # a new best: its neighbours are candidates now
                return
