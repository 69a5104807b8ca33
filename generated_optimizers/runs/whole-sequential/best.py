import math

import numpy as np
from scipy.special import ndtr, ndtri

NOISE = 0.02  # share of the variance that the parameters' distances cannot explain
REACH = 4.0  # sum of the weights before anything is known, whatever the number of parameters
MAX_TRIES = 20  # children beyond the brood's size, as some turn out to be known


def fitted(gaps, target, weights):
    """Move the weights towards the likelier, then condition a Gaussian process under them.

    The covariance is exp(-weighted distance): nearly additive where the weights are small, with
    interactions among the parameters whose weights are large.
    """
    n, mean = len(target), target.mean()
    rest = target - mean
    steps = 1 + 128 // n  # many while they are cheap and the weights are still far off
    for step in range(steps + 1):
        near = np.exp(-(gaps @ weights))
        inverse = np.linalg.inv(near + NOISE * np.eye(n))
        alpha = inverse @ rest
        scale = (rest @ alpha + 1.0) / (n + 1)
        if step < steps:
            pull = (inverse - np.outer(alpha, alpha) / scale) * near
            slope = 0.5 * weights * np.tensordot(pull, gaps, 2)
            slope = slope - np.log(weights * len(weights) / REACH)  # the prior: log-normal
            weights = weights * np.exp(0.3 * slope / (1.0 + np.abs(slope)))
    return weights, inverse, alpha, mean, scale


def believing(model, gaps):
    """The model after one more point, with these gaps to the others, has turned out as predicted."""
    weights, inverse, alpha, mean, scale = model
    near = np.exp(-(gaps @ weights))
    solved = inverse @ near
    border = np.append(solved, -1.0)
    grown = np.outer(border, border / (1.0 + NOISE - near @ solved))
    grown[:-1, :-1] += inverse
    return weights, grown, np.append(alpha, 0.0), mean, scale


def predicted(model, gaps):
    """Mean and standard deviation for points with these gaps to the fitted ones."""
    weights, inverse, alpha, mean, scale = model
    near = np.exp(-(gaps @ weights))
    left = 1.0 - ((near @ inverse) * near).sum(axis=1)
    return mean + near @ alpha, np.sqrt(scale * np.maximum(left, 1e-6))


class BelievingBroods:
    """Breed a brood near the best for every free place, mutating parameters in proportion to their learned
    weights, and submit only its child with the most expected improvement per second of machine time, judged
    by a Gaussian process that believes in its own predictions for everything pending.

    Nothing is bred twice: once the neighbours of the best are known, what is left of a brood lies farther
    out, where the uncertainty is larger. So a run that stops improving widens its search by itself.
    """

    def __init__(self, parents=32, largest_brood=40, kept=160):
        self.parents = parents
        self.largest_brood = largest_brood
        self.kept = kept  # results that the models are fitted to

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.space, self.rng = evaluate, space, rng
        self.results = []  # (configuration, cost, time from submission to result)
        self.best = []  # (cost, configuration) of what works, best first
        self.neighbors = {}  # of each mother, as they are slow to list
        self.strangers = []
        self.models = None  # of the score and of the duration
        self.weights = [np.full(len(space.names), REACH / len(space.names))] * 2
        self.due = evaluate.parallel  # results at which the models are fitted next
        batch = space.sample(evaluate.parallel)
        self.known = set(batch)
        self.pending = dict.fromkeys(batch, evaluate.spent)  # when each was submitted
        while batch or evaluate.pending:
            if batch:
                evaluate.submit(batch)
            done = evaluate.wait()
            now = evaluate.spent
            for config, cost in done:
                # as many are pending as the machine handles at once: hardly any of this is queueing
                self.results.append((config, cost, now - self.pending.pop(config, now)))
                if cost < float("inf"):
                    self.best = sorted([*self.best, (cost, config)])[: self.parents]
            if self.best and len(self.results) >= self.due:
                self._fit()
            batch = self._children(evaluate.parallel - evaluate.pending)

    def _children(self, count):
        """``count`` new configurations; fewer when all have been submitted."""
        children = []
        while len(children) < count:
            child = self._chosen_child()
            if child is None:
                break
            self.known.add(child)
            self.pending[child] = self.evaluate.spent
            children.append(child)
            if self.models:
                self._believe(child)
        return children

    def _chosen_child(self):
        """The most promising of a brood, else a stranger, else None."""
        # broods of all sizes, as a hedge: the larger, the more the models decide
        size = int(self.rng.integers(1, self.largest_brood + 1)) if self.models else 1
        brood = {}
        for _ in range(size + MAX_TRIES if self.best else 0):
            child = self._child()
            if child not in self.known:
                brood[child] = None
                if len(brood) == size:
                    break
        brood = list(brood)
        if not brood:
            return self._stranger()
        return brood[int(np.argmax(self._promise(brood)))] if len(brood) > 1 else brood[0]

    def _stranger(self):
        """A sample that has not been submitted, or None."""
        for _ in range(2):
            while self.strangers:
                config = self.strangers.pop()
                if config not in self.known:
                    return config
            self.strangers = self.space.sample(1024)[::-1]
        return None

    def _child(self):
        mother, chance = self._parent(), self.rng.random()
        if chance < 0.3:
            father = self._parent()
            from_mother = self.rng.random(len(mother)) < 0.5
            genes = zip(mother, father, from_mother)
            return self.space.repair([m if take else f for m, f, take in genes])
        if chance < 0.65:
            if mother not in self.neighbors:
                self.neighbors[mother] = self.space.neighbors(mother)
            near = self.neighbors[mother]
            return near[int(self.rng.integers(len(near)))] if near else mother
        # two changes or more, as the neighbours have one; what matters most is drawn first (a race)
        order = np.argsort(self.rng.exponential(size=len(mother)) / self.weights[0])
        changed = list(mother)
        for j in order[: 1 + self.rng.geometric(0.5)]:
            if self.space.ordinal[j] and self.rng.random() < 0.5:
                changed[j] += 1 if self.rng.random() < 0.5 else -1
            else:
                changed[j] = int(self.rng.integers(self.space.cardinalities[j]))
        return self.space.repair(changed)

    def _parent(self):
        """One of the best: the logarithm of its rank is uniform."""
        return self.best[int((len(self.best) + 1) ** self.rng.random()) - 1][1]

    def _points(self, configs):
        return np.array(configs, dtype=float) / np.maximum(np.array(self.space.cardinalities) - 1, 1)

    def _gaps(self, points):
        """Distance to each point of the models along each parameter, from 0 to 1."""
        gaps = np.abs(points[:, None] - self.points)
        return np.where(self.space.ordinal, gaps, gaps > 0)

    def _fit(self):
        """Learn from the best results and from a cross-section of the others."""
        configs, costs, took = zip(*self.results)
        costs, took, n = np.array(costs), np.array(took), len(costs)
        order = np.argsort(costs, kind="stable")
        rank = np.empty(n)
        rank[order] = np.arange(n)
        failed = np.isinf(costs)
        if failed.any():  # all equally bad
            rank[failed] = rank[failed].mean()
        score = ndtri((rank + 0.5) / n)  # resolves the best, however close they are
        self.goal = score.min()
        timed = took > 1e-6  # the given ones were answered at once, which tells nothing
        typical = np.median(took[timed]) if timed.any() else 1.0
        duration = np.log(np.where(timed, took, typical))
        if n > self.kept:
            half = self.kept // 2
            order = np.append(order[:half], order[np.linspace(half, n - 1, half).astype(int)])
        self.points = self._points(configs)[order]
        gaps = self._gaps(self.points)
        self.models = [
            fitted(gaps, target[order], weights)
            for target, weights in zip((score, duration), self.weights)
        ]
        self.weights = [model[0] for model in self.models]
        for config in self.pending:
            self._believe(config)
        self.due = n + 4 + n // 32

    def _believe(self, config):
        """Expect no more news where a result is on its way, so that the next child goes elsewhere."""
        point = self._points([config])
        self.models[0] = believing(self.models[0], self._gaps(point)[0])
        self.points = np.append(self.points, point, axis=0)

    def _promise(self, brood):
        """Logarithm of the expected improvement per time on the machine."""
        gaps = self._gaps(self._points(brood))
        mean, spread = predicted(self.models[0], gaps)
        margin = (self.goal - mean) / spread
        density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
        improvement = spread * (margin * ndtr(margin) + density)
        measured = len(self.models[1][2])  # the duration's model has none of the pending
        return np.log(np.maximum(improvement, 1e-300)) - predicted(self.models[1], gaps[:, :measured])[0]
