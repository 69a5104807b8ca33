import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri


def kernel(a, b):  # heavy-tailed: main effects reach far, and close neighbours still count most
    squared = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b) - 2 * a @ b.T
    return 1 / (1 + np.maximum(squared, 0))


def posterior(gram, y):
    """Gaussian process of the rows of y, each with an unknown mean: a crowd of good ones does not shift it."""
    inverse = np.linalg.inv(gram)
    trend = (y @ inverse.sum(0) / inverse.sum())[:, None]
    alpha = (y - trend) @ inverse
    return inverse, trend, alpha, (1 + alpha[0] @ (y - trend)[0]) / (1 + y.shape[1])


def misfit(theta, prior, codes, group, y):
    """Negative log posterior of the log weights and the log noise, with its gradient."""
    a, noise, away = codes * np.exp(theta[group] / 2), np.exp(theta[-1]), theta - prior
    k = kernel(a, a)
    gram = k + noise * np.eye(len(a))
    inverse, _, alpha, variance = posterior(gram, y)
    slope = inverse - np.outer(alpha[0], alpha[0]) / variance
    pull = slope * k * k
    by_column = ((pull @ a) * a).sum(0) - pull.sum(1) @ (a * a)
    by_weight = np.bincount(group, by_column, len(theta) - 1)
    value = (1 + len(a)) * np.log(variance) + np.linalg.slogdet(gram)[1]
    return value / 2 + away @ away / 4, np.append(by_weight, noise * np.trace(slope) / 2) + away / 2


def representatives(points, count):
    """Greedy design: each point explains most of what is unknown of all others, so extremes come late."""
    shared, chosen = kernel(points, points), []
    for _ in range(min(count, len(points))):
        value = (shared * shared).sum(0) / (np.diag(shared) + 0.01)
        value[chosen] = -1
        pick = int(np.argmax(value))
        shared = shared - np.outer(shared[pick], shared[pick]) / (shared[pick, pick] + 0.01)
        chosen.append(pick)
    return chosen


def own_times(codes, took, call):
    """A call lasts as long as its slowest member: main effects tell whom to blame, the others were faster."""
    ridge = np.linalg.solve(codes.T @ codes + 4 * np.eye(codes.shape[1]), codes.T)
    own = took
    for _ in range(5):
        guess, slowest = own.mean() + codes @ (ridge @ (own - own.mean())), np.full(call[-1] + 1, -np.inf)
        np.maximum.at(slowest, call, guess)
        own = np.where(guess >= slowest[call], took, np.minimum(took, guess))
    return own


def promise(best, mean, spread):
    """Expected improvement, if it works at all."""
    z = (best - mean[0]) / spread
    gain = spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
    return np.clip(mean[1], 0.02, 1.0) * np.maximum(gain, 0)


class RollingProductGain:
    """Start representatively, then fill growing calls by expected gain per second, own and others', under a GP of success and of speed fading into rank whose distance also sees the products of two parameters."""

    def __init__(self, fit_points=160, entries=100000, shortlist=200, elite=8, refit_growth=1600, most_between=64):
        self.fit_points = fit_points      # evaluations the model is conditioned on
        self.entries = entries            # bounds the kernel entries between candidates and evaluations
        self.shortlist = shortlist        # candidates whose posterior follows every result
        self.elite = elite                # the best, whose neighbours are always candidates
        self.refit_growth, self.most_between = refit_growth, most_between  # refits become rarer

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.space, self.rng = evaluate, space, rng
        self.width = max(1, int(evaluate.parallel))
        sizes, ordinal = np.array(space.cardinalities), np.array(space.ordinal, bool)
        self.steps = np.arange(sizes.max())
        inside = self.steps < sizes[:, None]
        self.live = np.vstack([inside, inside & ordinal[:, None]])
        # Threads, work and memory are products of parameters: where these agree, configurations are alike.
        self.logs = np.zeros(inside.shape)
        for i in np.flatnonzero(ordinal):
            if min(space.values[i]) > 0:
                self.logs[i, :sizes[i]] = np.log(np.divide(space.values[i], min(space.values[i])))
        reach = self.logs.max(1)
        self.pairs = np.argwhere(np.triu(np.outer(reach, reach), 1) > 0)
        self.span, count = reach[self.pairs].sum(1), len(self.pairs)
        # a weight for each parameter and kind of distance, and for each product
        self.group = np.append(np.nonzero(self.live)[0], 2 * len(sizes) + np.arange(count))
        # Few samples share one of many ordinal values: at first, nearby values must speak for each other.
        unequal, product = -1.5 - ordinal * np.log(sizes) / 2, np.full(count, 0.5 - np.log(max(1, count)) / 2)
        self.prior = self.theta = np.hstack([unequal, -0.5 - np.log(sizes), product, -4.6])
        self.plain = np.exp(self.prior[self.group] / 2)
        self.configs, self.index = [], {}
        self.codes, self.unseen = np.zeros((0, len(self.group)), np.float32), np.zeros(0, bool)
        pool = space.sample(20_000)
        self._add([pool[i] for i in rng.permutation(len(pool))])
        self.visited, self.cost, self.log_time, self.calls = [], [], [], []
        self.short, self.cursor, self.next_learn = [], 0, 0
        # half a call: fewer members meet the slow tail of compile times, still unknown
        design = representatives(self.codes[:500] * self.plain, max(4, self.width // 2))
        for i in range(0, len(design), self.width):
            self._measure(design[i:i + self.width])
        self.designed = len(design)
        while self.unseen.any():
            self._round()

    def _add(self, configs):  # squared distances of codes are Hamming and, along ordinals, L1 as well
        self.index.update(zip(configs, range(len(self.configs), len(self.configs) + len(configs))))
        self.configs += configs
        x = np.reshape(configs, (len(configs), -1, 1))
        products = self.logs[np.arange(x.shape[1]), x[:, :, 0]][:, self.pairs].sum(2) / self.span
        codes = np.hstack([np.hstack([x == self.steps, x > self.steps])[:, self.live], products])
        self.codes = np.vstack([self.codes, codes.astype(np.float32)])
        self.unseen = np.append(self.unseen, np.ones(len(configs), bool))

    def _measure(self, picks):
        before, costs = self.evaluate.spent, self.evaluate([self.configs[i] for i in picks])
        self.log_time += [np.log(max(self.evaluate.spent - before, 1e-9))] * len(picks)
        self.calls += [self.calls[-1] + 1 if self.calls else 0] * len(picks)
        self.visited += picks
        self.cost += list(costs)
        self.unseen[picks] = False
        return np.array(costs, float)

    def _candidates(self, leaders, limit):
        """The neighbours of the best, the last shortlist and the next window of the pool."""
        near = list(dict.fromkeys(c for i in leaders for c in self.space.neighbors(self.configs[i])))
        fresh = [c for c in near if c not in self.index]
        if fresh:  # the pool of a large space is only a sample: it grows around the best
            self._add(fresh)
        free = np.flatnonzero(self.unseen)
        window = free[(self.cursor + np.arange(min(limit, len(free)))) % len(free)]
        self.cursor += len(window)
        new = np.unique(np.concatenate([window, self.short, [self.index[c] for c in near]]).astype(int))
        return new[self.unseen[new]]

    def _targets(self, cost, ranked):
        """Speed fading into normal score of the rank, and success: fast ones often lie beside failures."""
        works = np.isfinite(cost)
        score = ndtri((np.searchsorted(ranked, cost) + 0.5) / (len(ranked) + 1))
        if len(ranked):  # few ranks are rough and hide how far ahead the best is; speeds have no slow tail
            speed, known, share = ranked[0] / cost, ranked[0] / ranked, 2 / np.sqrt(len(ranked) + 4)
            ahead = np.clip((known.mean() - speed) / (known.std() + 1e-9), -3, 3)
            score = (1 - share) * score + share * ahead
        return np.array([np.where(works, score, 1.0), works])

    def _round(self):
        """Refit, then call by call buy the highest joint gain per second, until a new best or enough news."""
        n, cost, visited = len(self.cost), np.array(self.cost, float), np.array(self.visited)
        order, half = np.argsort(cost, kind="stable"), self.fit_points // 2
        fit = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        new = self._candidates(visited[order[:self.elite]], self.entries // (50 + len(fit)))
        known, codes = self.codes[visited[fit]].astype(float), self.codes[new].astype(float)
        ranked = np.sort(cost[np.isfinite(cost)])
        y = self._targets(cost[fit], ranked)

        took = np.array(self.log_time)
        if self.width > 1:  # blame needs every member of a call, not only those fitted
            took = own_times(self.codes[visited].astype(float), took, np.array(self.calls))
        a, b = known * self.plain, codes * self.plain  # other weights than the costs'
        effect = np.linalg.solve(kernel(a, a) + 0.1 * np.eye(len(fit)), took[fit] - took[fit].mean())
        time = np.exp(effect @ kernel(a, b))

        if n >= self.next_learn:  # weights change slowly and need fewer points than means
            self.next_learn = 1.1 * n
            part = self.rng.permutation(len(fit))[:half]
            self.theta = minimize(misfit, self.theta, (self.prior, known[part], self.group, y[:1, part]),
                                  jac=True, bounds=[(-8, 3)] * len(self.theta), options={"maxiter": 6}).x
        weight, noise, best = np.exp(self.theta[self.group] / 2), np.exp(self.theta[-1]), y[0].min()
        a, b = known * weight, codes * weight
        inverse, trend, alpha, variance = posterior(kernel(a, a) + noise * np.eye(len(fit)), y)
        cross = kernel(a, b)
        solved = inverse @ cross
        mean, unsure = trend + alpha @ cross, 1 - (cross * solved).sum(0)
        # A model that has promised in vain for much of the run is too sure of itself: widen, and so explore.
        scale = np.sqrt(variance) * (1 + (n - max(np.argmin(cost) + 1, self.designed)) / n)
        rate = promise(best, mean, scale * np.sqrt(np.maximum(unsure, 1e-9))) / time
        top = np.argsort(-rate, kind="stable")[:max(self.shortlist, 4 * self.width)]
        self.short, mean, time, left = new[top], mean[:, top], time[top], np.ones(len(top), bool)
        cov = kernel(b[top], b[top]) - cross[:, top].T @ solved[:, top]

        done, due = 0, min(n * n // self.refit_growth, self.most_between)
        while True:
            picks, total, slowest, hoped = [], 0.0, 0.0, best
            # early results decide most: short calls first
            for _ in range(min(self.width, max(1, len(self.cost) // 2), int(left.sum()))):
                var = np.maximum(cov.diagonal(), 1e-9)
                gain = promise(hoped, mean, scale * np.sqrt(var))
                # Early, an isolated extreme teaches little: add the share of the others' gain that each resolves.
                gain = gain + (cov * cov) @ (left * gain / var) / (var + noise) / n
                worth = (total + gain) / np.maximum(slowest, time)  # the slowest member holds up all others
                pick = int(np.argmax(np.where(left, worth, -1)))  # until measured, believed to cost its mean
                total, slowest, hoped = total + gain[pick], max(slowest, time[pick]), min(hoped, mean[0, pick])
                pull = cov[pick] / (max(cov[pick, pick], 0.0) + noise)
                cov -= np.outer(pull, cov[pick])  # what it leaves unsure does not depend on its cost
                left[pick] = False
                picks.append((pick, pull))
            costs = self._measure([int(self.short[pick]) for pick, _ in picks])
            for (pick, pull), target in zip(picks, self._targets(costs, ranked).T):
                mean += np.outer(target - mean[:, pick], pull)  # exact, and far cheaper than a refit
            done += len(picks)
            if costs.min() < cost.min() or done + len(picks) > due or not left.any():
                return
