import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import ndtr

NOISE = 0.01  # share of the variance that no distance explains
PRIOR_PAIRS = 3.0  # what the prior of the weights counts beside the observed pairs
PAIRED = 64  # configurations whose pairs tell the weights


def distances(a, b, weights):
    """Weighted sum over parameters: half for differing at all, half for how far apart."""
    differing = cdist(a, b, "hamming", w=weights) * weights.sum()
    return 0.5 * (differing + cdist(a * weights, b * weights, "cityblock"))


def variogram(points, outcomes, prior):
    """How fast outcomes drift apart with each parameter: ridge regression over all pairs."""
    first, second = np.triu_indices(len(points), 1)
    apart = np.abs(points[first] - points[second])
    apart = 0.5 * (apart + (apart > 0))
    total = np.maximum(apart.sum(axis=1, keepdims=True), 0.5)
    # dividing by the distance gives the say to pairs with few differences
    shares = apart / total
    slopes = 0.5 * ((outcomes[first] - outcomes[second]) ** 2).sum(axis=1) / total[:, 0]
    information = shares.T @ shares + PRIOR_PAIRS * np.eye(len(prior))
    weights = np.linalg.solve(information, shares.T @ slopes + PRIOR_PAIRS * prior)
    return np.maximum(weights, 0.1 * prior)


def targets(costs):
    """Log costs, finest near the best; 0 is the start of the worst quarter, and failures have it.

    As the prior mean is 0 too, what is unlike everything measured is expected to be bad.
    """
    level, sound = np.zeros(len(costs)), np.isfinite(costs)
    if sound.any():
        gaps = np.log(costs[sound] / costs[sound].min())
        zoomed = np.log1p(gaps / max(np.median(gaps), 1e-3))
        zoomed -= np.quantile(zoomed, 0.75)
        level[sound] = zoomed / max(math.sqrt(np.mean(zoomed**2)), 1e-3)
    return level


class FrontierKriging:
    """Best-first search over a frontier of unmeasured neighbours and children, each ranked by expected
    improvement per second under a local kriging model: a variogram tells which parameters matter, and
    the time from submission to result tells what each configuration costs to try."""

    def __init__(self, keep=160, frontier_size=160, brood=24, expanded_best=4, blind=0.1):
        self.keep = keep  # measured configurations in the model
        self.frontier_size = frontier_size
        self.brood = brood  # children bred before each choice
        self.expanded_best = expanded_best  # so many of the best have all neighbours in the frontier
        self.blind = blind  # share that is chosen at random, in case the model is wrong

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.prior = np.full(len(space.names), 3.0 / len(space.names))
        self.cost, self.took = {}, {}  # of what is measured, in the order of the results
        self.sent = {}  # what is on its way, and since when
        self.frontier, self.expanded = [], set()
        ahead = evaluate.parallel // 5  # choosing a few at once saves models
        chosen = space.sample(evaluate.parallel)
        while True:
            if chosen:
                evaluate.submit(chosen)
                self.sent.update(dict.fromkeys(chosen, evaluate.spent))
            elif not evaluate.pending:
                return
            for config, cost in evaluate.wait():
                self.took[config] = evaluate.spent - self.sent.pop(config, evaluate.spent)
                self.cost[config] = cost
            chosen = []
            if evaluate.pending < evaluate.parallel:
                self.grow()
                if self.frontier:
                    chosen = self.choose(evaluate.parallel + ahead - evaluate.pending)

    def unseen(self, configs):
        return [c for c in dict.fromkeys(configs) if c not in self.cost and c not in self.sent]

    def grow(self):
        """Add children, and the neighbours of one of the best that has not had its turn."""
        ranked = sorted((c for c in self.cost if self.cost[c] < math.inf), key=self.cost.get)
        fresh = [self.child(ranked) for _ in range(self.brood if ranked else 0)]
        for config in ranked[: self.expanded_best]:
            if config not in self.expanded:
                self.expanded.add(config)
                fresh += self.space.neighbors(config)
                break
        self.frontier = self.unseen(self.frontier + fresh)
        if not self.frontier:
            self.frontier = self.unseen(self.space.sample(1024))

    def child(self, ranked):
        """Crossover or mutation; the model sorts them out, so every sound configuration may be a parent."""
        rng, d = self.rng, len(self.prior)
        # log-uniform in rank: the first is as likely as the next two, or the next four together
        ranks = ((len(ranked) + 1) ** rng.random(2)).astype(int) - 1
        mother, father = (np.array(ranked[min(r, len(ranked) - 1)]) for r in ranks)
        from_mother = 0.5 if rng.random() < 0.5 else 1.0
        genes = np.where(rng.random(d) < from_mother, mother, father)
        if (genes == mother).all():
            for j in rng.permutation(d)[: int((d // 2 + 1) ** rng.random())]:  # mostly few
                if self.space.ordinal[j] and rng.random() < 0.5:
                    genes[j] += 1 if rng.random() < 0.5 else -1
                else:
                    genes[j] = rng.integers(self.space.cardinalities[j])
        return self.space.repair(genes.tolist())

    def outcomes(self, rows):
        """Level of cost, failure and log duration of measured configurations."""
        costs = np.array([self.cost[c] for c in rows], dtype=float)
        took = np.array([self.took[c] for c in rows])
        timed = took > 0  # the others came from memory
        log_took = np.log(np.where(timed, took, 1.0))
        log_took[~timed] = log_took[timed].mean() if timed.any() else 0.0
        return np.column_stack([targets(costs), ~np.isfinite(costs), log_took])

    def choose(self, count):
        """Take from the frontier what promises most improvement per second, and prune it."""
        rows = list(self.cost)
        if len(rows) > self.keep:  # the latest, and the best of those before
            half = self.keep // 2
            rows = sorted(rows[:-half], key=self.cost.get)[:half] + rows[-half:]
        n, m = len(rows), len(rows) + len(self.sent)
        points = self.space.encode(rows + list(self.sent) + self.frontier)
        known, open_points = points[:m], points[m:]
        results = self.outcomes(rows)
        some = self.rng.permutation(n)[:PAIRED]
        weights = variogram(points[some], results[some, :2], self.prior)

        # what is on its way reduces the variance already, but only results move the mean
        near = np.exp(-distances(known, known, weights))
        root = np.linalg.cholesky(near + NOISE * np.eye(m))
        basis = solve_triangular(root, np.exp(-distances(known, open_points, weights)), lower=True)
        offset = np.array([0.0, *results[:, 1:].mean(axis=0)])
        white = solve_triangular(root[:n, :n], results - offset, lower=True)
        level, failing, log_took = white.T @ basis[:n] + offset[:, None]
        per_second = np.clip(1.0 - failing, 0.05, 1.0) / np.exp(log_took)
        variance = 1.0 - (basis**2).sum(axis=0)
        best = results[:, 0].min()

        free, picked = np.ones(len(self.frontier), dtype=bool), []
        for _ in range(min(count, len(free))):
            spread = np.sqrt(np.maximum(variance, 1e-6))
            margin = (best - level) / spread
            density = np.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
            value = spread * (margin * ndtr(margin) + density) * per_second
            if self.rng.random() < self.blind:
                j = int(self.rng.choice(np.flatnonzero(free)))
            else:
                j = int(np.argmax(np.where(free, value, -1.0)))
            picked.append(self.frontier[j])
            free[j] = False
            # the next of this choice should tell something else
            row = np.exp(-distances(open_points[j : j + 1], open_points, weights))[0]
            row = row - basis[:, j] @ basis
            row = row / math.sqrt(max(row[j], 0.0) + NOISE)
            basis = np.vstack([basis, row])
            variance = variance - row**2
        order = [j for j in np.argsort(-value, kind="stable") if free[j]]
        self.frontier = [self.frontier[j] for j in order[: self.frontier_size]]
        return picked
