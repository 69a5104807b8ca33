import math

import numpy as np
from scipy.special import ndtr


def similarity(a, b):
    """Exponential of minus the squared distance, for all pairs of rows."""
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return np.exp(-np.maximum(squared, 0.0))


class NichedOffspring:
    """Breed from the best of each niche, niches being told apart by what a Gaussian process has learned to matter, and
    draw what to measure in proportion to a power of its expected improvement per second, while the model's resolution
    follows the spread of the best dozen."""

    def __init__(
        self, parents=12, children=150, keep=200, warmup=16, resolution=0.01, noise=0.02, alike=0.8, temperature=0.25
    ):
        self.parents = parents
        self.children = children
        self.keep = keep  # results that the model is fitted to
        self.warmup = warmup  # results without which the model has no say
        self.resolution = resolution  # differences of log time below this one hardly count
        self.noise = noise
        self.alike = alike  # similarity from which on two configurations share a niche
        self.temperature = temperature  # 0: always the highest expectation; 1: in proportion to it

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal)
        # bits whose squared distance is the number of steps of an ordinal, or 1 between two categories
        self.bits = [
            np.tri(card, card - 1, -1) / max(card - 1, 1) ** 0.25 if ordinal else np.eye(card) * 0.5**0.5
            for card, ordinal in zip(space.cardinalities, space.ordinal)
        ]
        self.owner = np.repeat(np.arange(len(self.bits)), [table.shape[1] for table in self.bits])
        # together the parameters decorrelate as much in any number of dimensions
        self.prior = math.log(4.0 / len(self.bits))
        self.log_rates = np.full(len(self.bits), self.prior)
        self.configs, self.costs, self.took = [], [], []
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self._send(evaluate, space.sample(evaluate.parallel))
        best, queue = math.inf, []
        while done := evaluate.wait():
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(evaluate.spent - self.sent.pop(config, evaluate.spent))
            if min(self.costs) < best:  # what was planned around the former best is old news
                best, queue = min(self.costs), []
            while evaluate.pending < evaluate.parallel and (
                queue := queue or self._plan(max(1, evaluate.parallel // 2))
            ):
                self._send(evaluate, [queue.pop(0)])

    def _send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update((config, evaluate.spent) for config in configs)
        evaluate.submit(configs)

    def _plan(self, count):
        """The next ``count`` new configurations; fewer or none when little is left to visit."""
        order = np.argsort(self.costs, kind="stable")
        elite = self._niches(order)
        other = elite[int(self.rng.integers(len(elite)))]
        ideas = [*self.space.neighbors(elite[0]), *self.space.neighbors(other), *self._breed(np.array(elite))]
        ideas = [config for config in dict.fromkeys(ideas) if config not in self.asked]
        picked = []
        if ideas:
            known = len(order) >= self.warmup
            for j in self._screen(ideas, order) if known else self.rng.permutation(len(ideas)):
                config = self.space.repair(ideas[j])  # only what is picked: it takes its time
                if config not in self.asked and config not in picked:
                    picked.append(config)
                if len(picked) == count:
                    break
        return picked or [config for config in self.space.sample(1024) if config not in self.asked][:count]

    def _niches(self, order):
        """The best configurations of which no two are alike in what matters: copies of the best that differ in idle
        parameters only would leave nothing to cross."""
        working = [self.configs[i] for i in order[: self.keep] if self.costs[i] < math.inf]
        if not working:
            return self.configs
        points = self._points(working) * self._stretch()
        near, chosen = similarity(points, points), []
        for i in range(len(working)):
            if len(chosen) < self.parents and np.all(near[i, chosen] < self.alike):
                chosen.append(i)
        return [working[i] for i in chosen]

    def _breed(self, elite):
        """Children, not normalised: a parent or a mixture of two, with a few parameters changed."""
        rng, count, size = self.rng, self.children, (self.children, elite.shape[1])
        mothers = elite[(rng.random(count) ** 3 * len(elite)).astype(int)]  # mostly the best
        fathers = elite[rng.integers(0, len(elite), count)]
        crossed = rng.random(count) < 0.3
        mixed = np.where(crossed[:, None] & (rng.random(size) < 0.5), fathers, mothers)
        changes = rng.geometric(0.4, count) - crossed
        changed = rng.random(size).argsort(axis=1) < changes[:, None]
        stepped = np.clip(mixed + rng.choice((-1, 1), size), 0, self.cards - 1)
        drawn = rng.integers(0, self.cards, size)
        values = np.where(self.ordinal & (rng.random(size) < 0.5), stepped, drawn)
        return [tuple(child) for child in np.where(changed, values, mixed).tolist()]

    def _points(self, configs):
        return np.hstack([table[column] for table, column in zip(self.bits, np.array(configs).T)])

    def _stretch(self):
        return np.exp(0.5 * self.log_rates)[self.owner]

    def _targets(self, rows):
        """Log of the distance to the best log time, and relative log durations."""
        costs, took = np.array(self.costs)[rows], np.array(self.took)[rows]
        works, y = np.isfinite(costs), np.zeros(len(rows))
        if works.any():
            gaps = np.log(costs[works]) - np.log(costs[works].min())
            # while the best are far apart, the first of them is no peak to stay at: look from further away
            resolution = max(self.resolution, float(np.median(np.sort(gaps)[: self.parents])))
            y[works] = np.log(resolution + gaps)
            y[~works] = max(y[works].max(), 0.0)  # as the slowest, or e times slower than the best
        # what is far from all results is expected to be bad: there is much more of it
        y -= np.quantile(y, 0.75)
        duration = np.log(np.where(took > 0.0, took, took.mean() + 1e-9))  # what was given took none
        return y, duration - duration.mean()

    def _screen(self, ideas, order):
        """Yield the indices of the ideas, those of much expected improvement per second likely first."""
        if len(order) > self.keep:
            half = self.keep // 2
            order = np.append(order[:half], self.rng.choice(order[half:], half, replace=False))
        y, duration = self._targets(order)
        rows, n = self._points([self.configs[i] for i in order]), len(order)
        for _ in range(2):  # a step towards the likeliest rates each; the next plan continues from there
            stretch = self._stretch()
            scaled = rows * stretch
            near = similarity(scaled, scaled)
            inverse = np.linalg.inv(near + self.noise * np.eye(n))
            alpha = inverse @ y
            scale = y @ alpha / n + 1e-9
            pull = (np.outer(alpha, alpha) / scale - inverse) * near
            slope = (scaled * (pull @ scaled)).sum(axis=0) - pull.sum(axis=1) @ scaled**2
            gradient = np.bincount(self.owner, slope, len(self.bits)) + self.prior - self.log_rates
            self.log_rates = self.log_rates + np.clip(3.0 * gradient / n, -0.3, 0.3)

        count = len(ideas)
        points = self._points(ideas + list(self.sent)) * stretch
        cross = similarity(points, scaled)
        weights = cross @ inverse
        covariance = similarity(points, points) - weights @ cross.T
        mean, seconds = weights[:count] @ y, np.exp(weights[:count] @ duration)
        free, waiting = np.ones(count, dtype=bool), list(range(count, len(points)))
        for _ in range(len(points)):
            # what is on its way and what was picked leave less to learn from their likes
            if waiting:
                j = waiting.pop()
            else:
                spread = np.sqrt(scale * np.maximum(np.diag(covariance)[:count], 1e-9))
                margin = (y.min() - mean) / spread
                density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
                gain = spread * np.maximum(margin * ndtr(margin) + density, 0.0)
                # Gumbel noise draws in proportion to a power: where the model knows little, it decides little
                promise = np.log(gain / seconds + 1e-300) + self.temperature * self.rng.gumbel(size=count)
                j = int(np.argmax(np.where(free, promise, -np.inf)))
                free[j] = False
                yield j
            covariance -= np.outer(covariance[:, j], covariance[j]) / (max(covariance[j, j], 0.0) + self.noise)
