import itertools
import math

import numpy as np
from scipy.special import ndtr


def coordinates(space, pool, reach, pair_share):
    """Columns for a weighted city-block distance, the group (one weight each) of every column, log prior weights."""
    indices, columns, group, prior, logs = np.array(pool), [], [], [], []
    varying = [i for i, values in enumerate(space.values) if len(values) > 1]
    # Random configurations are equally correlated beforehand, however many parameters there are.
    single = reach / max(1, len(varying))
    for i in varying:
        index, values = indices[:, i], space.values[i]
        if space.ordinal[i]:
            numbers = np.array(values, float)
            positive = numbers.min() > 0
            numbers = np.log(numbers) if positive else np.arange(float(len(values)))
            span = numbers.max() - numbers.min()
            column = (numbers - numbers.min())[index]
            columns.append(column / span)
            group.append(len(prior))
            if positive:
                logs.append((column, span))
        else:
            for value in range(len(values)):  # two different categories are 1 apart
                columns.append(0.5 * (index == value))
                group.append(len(prior))
        prior.append(single)
    for (a, span_a), (b, span_b) in itertools.combinations(logs, 2):  # products: threads, tile areas
        columns.append((a + b) / (span_a + span_b))
        group.append(len(prior))
        prior.append(pair_share * single)
    X = np.array(columns, float).reshape(-1, len(pool)).T
    owner = np.eye(len(prior))[np.array(group, int)]
    return X, owner, np.log(np.array(prior, float))


class Choir:
    """Gaussian processes over the whole pool, one for each row of weights, exact by one new factor row per choice."""

    def __init__(self, X, weights, centre, failing, lasting, unvisited, rows, noise):
        shape = len(weights), len(X)
        self.X, self.weights, self.noise, self.open = X, weights, noise, unvisited
        self.factor = np.empty((shape[0], rows, shape[1]))
        self.pivots = []
        self.variance = np.ones(shape)
        self.mean = np.repeat(centre[:, None], shape[1], axis=1)
        self.failing, self.lasting = np.full(shape, failing), np.full(shape, lasting)
        self.squares, self.hits, self.best = np.zeros(shape[0]), 0, math.inf

    def correlation(self, i):
        return np.exp(-np.abs(self.X - self.X[i]) @ self.weights.T).T

    def add(self, i):
        """Condition the variances on configuration i; its cost is not needed for that."""
        count = len(self.pivots)
        known = self.factor[:, :count]
        at_i = np.ascontiguousarray(known[:, :, i])[:, None, :]
        row = self.correlation(i) - np.matmul(at_i, known)[:, 0]
        pivot = np.sqrt(np.maximum(row[:, i], 0.0) + self.noise)
        row /= pivot[:, None]
        self.factor[:, count] = row
        self.pivots.append(pivot)
        self.variance = np.maximum(self.variance - row * row, 1e-9)
        self.open[i] = False
        return row

    def learn(self, slot, i, level, lasted):
        """Condition the means on the result of the choice in this slot (in order of the slots)."""
        row, pivot = self.factor[:, slot], self.pivots[slot]
        failed = math.isinf(level)
        self.failing += ((failed - self.failing[:, i]) / pivot)[:, None] * row
        self.lasting += ((lasted - self.lasting[:, i]) / pivot)[:, None] * row
        if failed:  # as if the expected cost had been seen: a failure says nothing about the costs beside it
            return
        surprise = (level - self.mean[:, i]) / pivot
        self.mean += surprise[:, None] * row
        self.squares += surprise ** 2
        self.hits += 1
        self.best = min(self.best, level)

    def worth(self):
        """Expected improvement, averaged over the members, times the chance to run at all, per foretold time."""
        scale = (4.0 + self.squares) / (4.0 + self.hits)
        deviation = np.sqrt(self.variance * scale[:, None])
        gain = (self.best if self.hits else 0.0) - self.mean
        u = gain / deviation
        improvement = gain * ndtr(u) + 0.39894 * deviation * np.exp(-0.5 * u * u)
        improvement = np.maximum(improvement, 1e-9 * deviation).mean(0)
        works = np.clip(1.0 - self.failing.mean(0), 0.02, 1.0)
        return np.where(self.open, works * improvement * np.exp(-self.lasting.mean(0)), -1.0)


class AnchoredChoir:
    """A choir of exact Gaussian processes, each anchored to its own draw from the prior of the parameter weights, votes by mean expected improvement per foretold time."""

    def __init__(self, members=4, reach=4.0, pair_share=0.15, spread=0.8, noise=0.01,
                 overhead=8.0, growth=1.5, fit_limit=72, memory=300, limit=1500):
        self.members, self.reach, self.pair_share = members, reach, pair_share
        self.spread, self.noise, self.overhead = spread, noise, overhead
        self.growth, self.fit_limit, self.memory, self.limit = growth, fit_limit, memory, limit
        self.middle, self.width, self.times = 0.0, 1.0, {}

    def __call__(self, evaluate, space, rng):
        workers, costs = evaluate.parallel, {}
        pool = [tuple(c) for c in np.asarray(space.pool(self.limit)).tolist()]
        complete = len(pool) < self.limit
        X, owner, prior = coordinates(space, pool, self.reach, self.pair_share)
        anchor = prior + self.spread * rng.standard_normal((self.members, len(prior)))
        anchor[0] = prior  # this member lays out the first points
        theta, due = anchor, 0
        first = max(4, workers // 2)  # half a call: the second one is already informed
        choir = Choir(X, np.exp(theta) @ owner.T, np.zeros(self.members), 0.1, 0.0,
                      np.ones(len(pool), bool), first, self.noise)
        batch = self.design(choir, first, rng)
        while batch:
            slot = len(choir.pivots) - len(batch)
            for part in [batch[k:k + workers] for k in range(0, len(batch), workers)]:
                began = evaluate.spent
                found = evaluate([pool[i] for i in part])
                # Relative to a call of this size: what shared a long call is suspected, a short one clears all.
                lasted = math.log(max(evaluate.spent - began, 1e-9) / (self.overhead + len(part)))
                for i, cost in zip(part, found):
                    costs[pool[i]], self.times[pool[i]] = cost, lasted
                    choir.learn(slot, i, self.level(cost), lasted)
                    slot += 1
            if len(choir.pivots) >= due or not choir.open.any():
                kept, ranked = list(costs), sorted(costs, key=costs.get)
                if len(kept) > self.memory:  # long runs: the best and the latest
                    part = self.memory // 4
                    kept = list(dict.fromkeys(ranked[:part] + kept[-part:]))
                if not complete:  # too many to score all: known ones, surroundings of the best, random ones
                    around = [c for best in ranked[:8] for c in space.neighbors(best)]
                    drawn = space.sample(400)
                    pool = list(dict.fromkeys(tuple(map(int, c)) for c in kept + around + drawn))
                    X, owner, prior = coordinates(space, pool, self.reach, self.pair_share)
                due = int(self.growth * len(kept)) + 2
                choir, theta = self.rebuild(X, owner, pool, costs, kept, theta, anchor, due + workers, rng)
            batch = self.choose(choir, workers)

    def level(self, cost):
        """Standardised log cost, the slow half compressed: how slow a slow one is tells little of the fast."""
        t = (math.log(cost) - self.middle) / self.width
        return t if t < 0.0 else math.log1p(t)

    def design(self, choir, size, rng):
        """First points: those whose costs tell most about all others (central ones rather than corners)."""
        watched = rng.permutation(len(choir.X))[:128]
        covariance = np.array([choir.correlation(i)[0] for i in watched])
        batch = []
        while len(batch) < size and choir.open.any():
            told = (covariance ** 2).sum(0) / (choir.variance[0] + self.noise)
            i = int(np.argmax(np.where(choir.open, told, -1.0)))
            row = choir.add(i)[0]
            covariance -= np.outer(row[watched], row)
            batch.append(i)
        return batch

    def choose(self, choir, workers):
        """Fill a call while the next choice does not lower the improvement expected per time of the call."""
        batch, total = [], 0.0
        while len(batch) < workers and choir.open.any():
            worth = choir.worth()
            i = int(np.argmax(worth))
            if worth[i] * (self.overhead + len(batch)) < total:
                break
            total += worth[i]
            batch.append(i)
            choir.add(i)  # believed at its mean until measured: only the variances change
        return batch

    def rebuild(self, X, owner, pool, costs, kept, theta, anchor, rows, rng):
        """Rescale the costs, move each member's weights towards its own optimum, and condition anew."""
        logs = np.log([c for c in costs.values() if math.isfinite(c)])
        if len(logs):
            self.middle = float(np.median(logs))
            self.width = float(np.abs(logs - self.middle).mean()) or 1.0
        index = {config: i for i, config in enumerate(pool)}
        seen = [index[config] for config in kept]
        levels = np.array([self.level(costs[config]) for config in kept])
        fine = rng.permutation(np.flatnonzero(np.isfinite(levels)))[:self.fit_limit]
        centre = np.zeros(self.members)
        if len(fine) >= 4:
            theta, centre = self.fit(X[np.array(seen)[fine]], levels[fine], theta, anchor, owner)
        failing = (np.isinf(levels).sum() + 0.5) / (len(levels) + 1.0)
        unvisited = np.array([config not in costs for config in pool])
        times = [self.times[config] for config in kept]
        choir = Choir(X, np.exp(theta) @ owner.T, centre, failing, float(np.mean(times)), unvisited, rows, self.noise)
        for slot, (i, level) in enumerate(zip(seen, levels)):
            choir.add(i)
            choir.learn(slot, i, float(level), times[slot])
        return choir, theta

    def fit(self, X, y, theta, anchor, owner):
        """A few damped gradient steps on the log posterior of the log weights, each member about its own anchor."""
        distance = np.abs(X[:, None] - X[None])
        nugget = self.noise * np.eye(len(y))
        for step in np.geomspace(0.6, 0.1, 8):
            weights = np.exp(theta)
            kernel = np.exp(-np.moveaxis(distance @ (weights @ owner.T).T, 2, 0))
            inverse = np.linalg.inv(kernel + nugget)
            total = inverse.sum(2)
            centre = total @ y / total.sum(1)  # clustered good results do not make the unknown look good
            residual = y - centre[:, None]
            alpha = np.matmul(inverse, residual[:, :, None])[:, :, 0]
            scale = (4.0 + (alpha * residual).sum(1)) / (4.0 + len(y))
            pull = (inverse - alpha[:, :, None] * alpha[:, None, :] / scale[:, None, None]) * kernel
            slope = 0.5 * weights * (np.tensordot(pull, distance, ([1, 2], [0, 1])) @ owner)
            slope -= (theta - anchor) / self.spread ** 2
            theta = theta + step * slope / (1.0 + np.abs(slope))
        return theta, centre
