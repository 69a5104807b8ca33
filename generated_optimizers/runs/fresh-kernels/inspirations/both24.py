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


class RepresentativeThenJointGain:
    """Start representatively, then fill growing calls by a GP's gain per second over fresh candidates and old finalists."""

    def __init__(self, fit_points=160, candidates=1200, elite=8, batch_growth=1600, max_batch=64):
        self.fit_points, self.candidates, self.elite = fit_points, candidates, elite
        self.batch_growth, self.max_batch = batch_growth, max_batch

    def __call__(self, evaluate, space, rng):
        self.space, self.rng, self.pool, width = space, rng, space.sample(20_000), evaluate.parallel
        sizes, self.steps = np.array(space.cardinalities), np.arange(max(space.cardinalities))
        ordinal, inside = np.array(space.ordinal), self.steps < sizes[:, None]
        self.live = np.vstack([inside, inside & ordinal[:, None]])
        self.group = np.nonzero(self.live)[0]  # a weight for each parameter and kind of distance
        # Few samples share one of many ordinal values: at first, nearby values must speak for each other.
        unequal = -1.5 - ordinal * np.log(sizes) / 2
        self.prior = self.theta = np.hstack([unequal, -0.5 - np.log(sizes), -4.6])
        self.plain = np.exp(self.prior[self.group] / 2)
        self.cost, self.log_time, self.calls, self.finalists = {}, [], [], []
        start = space.sample(500)
        # half a round: fewer members meet the slow tail of compile times, still unknown
        queue = [start[i] for i in representatives(self._codes(start) * self.plain, max(4, width // 2))]
        while queue:
            chunk, before = queue[:width], evaluate.spent
            self.cost.update(zip(chunk, evaluate(chunk), strict=True))
            self.log_time += [np.log(max(evaluate.spent - before, 1e-9))] * len(chunk)
            self.calls += [len(self.calls)] * len(chunk)
            n = len(self.cost)  # early results decide most: short calls first, several at once only late
            rounds = max(1, min(n * n // self.batch_growth, self.max_batch) // width)
            queue = queue[width:] or self._choose(min(max(1, width // 4, n // 3), width * rounds), width)

    def _codes(self, configs):  # squared distances are Hamming and, along ordinals, L1 as well
        x = np.reshape(configs, (len(configs), -1, 1))
        return np.hstack([x == self.steps, x > self.steps])[:, self.live]

    def _choose(self, count, width):
        """New configurations that, call by call, promise the highest joint gain per second."""
        known, cost = list(self.cost), np.array(list(self.cost.values()))
        order, half = np.argsort(cost), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        near = [n for i in order[: self.elite] for n in self.space.neighbors(known[i])]
        limit = self.candidates // (1 + len(fit) // 50)  # the larger the model, the fewer: bounded work
        far = [self.pool[i] for i in self.rng.permutation(len(self.pool))[:limit]]
        new = [c for c in dict.fromkeys(near + self.finalists + far) if c not in self.cost]
        new = new or [c for c in self.pool if c not in self.cost]
        score = ndtri((np.searchsorted(np.sort(cost), cost) + 0.5) / len(cost))  # failures: worst
        # Ranks of few results hide how much faster one is: speeds tell, failures having none.
        speed = 1 / cost
        speed = np.log1p(speed / (speed.mean() or 1))  # bounds both tails: slow ones near 0, fast ones by the log
        score = (score - (speed - speed.mean()) / (speed.std() or 1)) / 2
        y, took, call = (np.array(v)[fit] for v in (score - score.mean(), self.log_time, self.calls))
        codes = self._codes([known[i] for i in fit] + new)
        time = durations(*np.split(codes * self.plain, [len(y)]), call, took)  # other weights than the costs'
        part = self.rng.permutation(len(y))[:half]  # enough to learn the weights from
        self.theta = minimize(misfit, self.theta, (self.prior, codes[part], self.group, y[part]),
                              jac=True, bounds=[(-8, 3)] * len(self.theta), options={"maxiter": 5}).x
        a, b = np.split(codes * np.exp(self.theta[self.group] / 2), [len(y)])
        cross, noise = kernel(a, b), np.exp(self.theta[-1])
        inverse = np.linalg.inv(kernel(a, a) + noise * np.eye(len(y)))
        solved = inverse @ cross
        mean, variance = y @ solved, (1 + y @ inverse @ y) / (1 + len(y))
        unsure = 1 - (cross * solved).sum(0)  # share of the variance that is still unexplained
        chosen, rows, best, gain = [], np.empty((0, len(new))), y.min(), np.zeros(len(new))
        while len(chosen) < min(count, len(new)):
            total, slowest = (total, slowest) if len(chosen) % width else (0.0, 0.0)  # of one call
            spread = np.sqrt(variance * np.maximum(unsure, 1e-9))
            z = (best - mean) / spread
            gain = spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            rate = (total + gain) / np.maximum(slowest, time)  # the slowest member holds up all others
            rate[chosen] = -1
            pick = np.argmax(rate)  # believed to cost its mean: what it tells is known now
            total, slowest = total + gain[pick], max(slowest, time[pick])
            shared = kernel(b[[pick]], b) - cross[:, pick] @ solved - rows[:, pick] @ rows
            rows = np.vstack([rows, shared / np.sqrt(unsure[pick] + noise)])
            unsure, best = unsure - rows[-1] ** 2, min(best, mean[pick])
            chosen.append(pick)
        # Good ones are rare and each draw is small: runners-up stay, so that in time the whole pool competes.
        self.finalists = [new[i] for i in np.argsort(-gain / time)[: limit // 4]]
        return [new[i] for i in chosen]
