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
    gradient = np.append(np.bincount(group, by_column, len(theta) - 1), noise * np.trace(slope) / 2)
    value = (1 + len(y)) * np.log(variance) + np.linalg.slogdet(gram)[1]
    return value / 2 + away @ away / 4, gradient + away / 2


def expected_gain(best, mean, variance):
    spread = np.sqrt(np.maximum(variance, 1e-9))
    z = (best - mean) / spread
    return spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


class ConditionedLocalSearch:
    """Between rare, bounded refits, a GP's posterior over a short list is conditioned exactly on every result."""

    def __init__(self, start_samples=5, points=200, candidates=1000):
        self.start_samples, self.points, self.candidates = start_samples, points, candidates

    def __call__(self, evaluate, space, rng):
        pool, width, seen = space.sample(20_000), evaluate.parallel, {}
        pool = [pool[i] for i in rng.permutation(len(pool))]
        sizes = np.array(space.cardinalities)
        parameter, level = np.nonzero(np.arange(sizes.max()) < sizes[:, None])
        group = np.append(parameter, parameter + len(sizes))  # each parameter: a Hamming and an L1 weight
        # Few results tell about many values only if order matters: half an ordinal effect is gradual.
        prior = theta = np.hstack([np.where(space.ordinal, -2.2, -1.5), -0.5 - np.log(sizes), -4.6])

        def measure(configs):
            before, costs = evaluate.spent, evaluate(configs)
            log_time = np.log(evaluate.spent - before + 1e-9)
            seen.update((config, (cost, log_time)) for config, cost in zip(configs, costs))
            return costs

        for i in range(0, self.start_samples, width):
            measure(pool[i : i + width])
        # Each round takes the next candidates of the pool, so that every configuration gets its turn.
        while pool := [c for c in pool[self.candidates :] + pool[: self.candidates] if c not in seen]:
            known, (cost, log_time) = list(seen), np.array(list(seen.values())).T
            order, half = np.argsort(cost), self.points // 2
            fit = rng.permutation(np.append(order[:half], rng.permutation(order[half:])[:half]))
            near = [n for i in order[:8] for n in space.neighbors(known[i]) if n not in seen]
            new = list(dict.fromkeys(near + pool[: self.candidates]))
            score = lambda c: ndtri((np.searchsorted(cost, c, sorter=order) + 0.5) / (len(cost) + 1))
            centre = score(cost).mean()
            y, log_time = score(cost[fit]) - centre, log_time[fit] - log_time.mean()
            x = np.array([known[i] for i in fit] + new)[:, parameter]
            codes = np.hstack([x == level, (x > level) & np.array(space.ordinal)[parameter]])
            learn = (prior, codes[: len(y)][:half], group, y[:half])  # weights need fewer points than means
            theta = minimize(misfit, theta, learn, jac=True, bounds=[(-8, 3)] * len(theta), options={"maxiter": 5}).x
            a, b = np.split(codes * np.exp(theta[group] / 2), [len(y)])
            cross, noise = kernel(a, b), np.exp(theta[-1])
            inverse = np.linalg.inv(kernel(a, a) + noise * np.eye(len(y)))
            solved, variance = inverse @ cross, (1 + y @ inverse @ y) / (1 + len(y))
            mean, time = y @ solved, np.exp(log_time @ solved)
            gain = expected_gain(y.min(), mean, variance * (1 - (cross * solved).sum(0))) / time
            short = np.argsort(-gain)[: self.points]
            new, mean, time = [new[i] for i in short], mean[short], time[short]
            cov = variance * (kernel(b[short], b[short]) - cross[:, short].T @ solved[:, short])
            for i in range(len(new))[: max(1, len(known) // 8) : width]:  # until the data have grown by a share
                picks = []
                for _ in new[i : i + width]:
                    pick = np.nanargmax(expected_gain(y.min(), mean, cov.diagonal()) / time)
                    pull = cov[pick] / (cov[pick, pick] + noise * variance)
                    cov -= np.outer(pull, cov[pick])  # what it leaves unsure does not depend on its cost
                    time[pick] = np.nan  # no candidate any more
                    picks.append((pick, pull))
                costs = measure([new[pick] for pick, _ in picks])
                for (pick, pull), result in zip(picks, costs):
                    mean += pull * (score(result) - centre - mean[pick])
                if min(costs) < cost.min():  # a new best: its neighbours are candidates now
                    break
