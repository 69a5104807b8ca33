import math

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.special import ndtr

GOLDEN = 0.6180339887498949  # low-discrepancy steps: any run of slots covers the ladder evenly


class Committee:
    """Average of a few product kernels over one-hot codes, evolved by posterior probability."""

    def __init__(self, space, members=3, proposals=24):
        self.cards = [int(c) for c in space.cardinalities]
        self.size, self.half, self.fitted = members, proposals // 2, 0
        self.owner = np.repeat(np.arange(len(self.cards)), self.cards)
        tables = []
        for card, ordinal in zip(self.cards, space.ordinal):
            gap = np.abs(np.subtract.outer(np.arange(card), np.arange(card))) / max(card - 1, 1)
            differs = (gap > 0).astype(float)
            # ordinal: mostly smooth, partly categorical, as numbers may be mere labels
            tables.append(0.8 * gap ** 1.5 + 0.2 * differs if ordinal else differs)
        self.distance = block_diag(*tables)
        # log relevance of each parameter, then log nugget
        self.prior = np.append(np.full(len(self.cards), math.log(3 / len(self.cards))), math.log(0.015))
        self.members = self.prior[None, :]

    def encode(self, configs):
        return np.hstack([np.eye(card)[column] for card, column in zip(self.cards, configs.T)])

    def gram(self, a, b, member):
        relevance = np.exp(member[:-1])[self.owner]
        return np.exp(-(a @ ((b @ self.distance) * relevance).T))

    def kernel(self, a, b):
        return sum(self.gram(a, b, member) for member in self.members) / len(self.members)

    def nugget(self):
        return np.exp(self.members[:, -1]).mean() + 1e-4

    def predict(self, x, y, options):
        gram = self.kernel(x, x) + (self.nugget() + 0.05) * np.eye(len(x))
        return y.mean() + self.kernel(options, x) @ np.linalg.solve(gram, y - y.mean())

    def borrow(self, other):
        """One member: the geometric mean of another committee's members and the prior."""
        self.members = np.vstack([other.members, self.prior]).mean(axis=0, keepdims=True)

    def learn(self, x, y, rng):
        """Mutants and fresh draws compete with the members; averaging several guards against overfitting."""
        n, shape = len(y), (self.half, len(self.prior))
        if n < 1.1 * self.fitted:  # little news: not worth the CPU time
            return
        self.fitted = n
        parents = self.members[rng.integers(len(self.members), size=self.half)]
        # Large steps in about two genes climb faster than equal steps in all of them.
        scale = np.where(rng.random(shape) < 2 / shape[1], 0.8, 0.2)
        mutants = parents + scale * rng.standard_normal(shape)
        rivals = np.vstack([self.members, mutants, self.prior + rng.standard_normal(shape)])
        grams = np.stack([self.gram(x, x, rival) for rival in rivals])
        grams += (np.exp(rivals[:, -1]) + 1e-4)[:, None, None] * np.eye(n)
        factors = np.linalg.cholesky(grams)
        misfit = (np.linalg.solve(factors, y[None, :, None])[..., 0] ** 2).sum(axis=1)
        half_log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        evidence = -0.5 * (n + 2) * np.log((misfit + 2) / (n + 2)) - half_log_det
        evidence -= 0.4 * ((rivals - self.prior) ** 2).sum(axis=1)
        self.members = rivals[np.argsort(-evidence, kind="stable")[:self.size]]


class DelayAwareLadder:
    """Each slot of a batch takes what most raises the expected improvement per second of the whole batch, since one slow compilation delays all of it, with waiting times predicted along the parameters that prove to matter for the run times.

    Each slot aims beyond its own rung of a ladder of targets, failures are learnt by a committee
    of their own, and slow batches are filled up because more configurations can share the wait.
    """

    def __init__(self, first=6, centering=0.8, ambition=0.25, ambition_step=0.35, max_train=160):
        self.first = first  # least number of first points
        self.centering = centering  # how many Hamming steps of spread an extreme value costs at first
        self.ambition = ambition  # length of the ladder, in standard deviations of the targets ...
        self.ambition_step = ambition_step  # ... and its growth per batch without progress
        self.max_train = max_train

    def __call__(self, evaluate, space, rng):
        workers = max(1, int(evaluate.parallel))
        model = Committee(space)  # of the run times
        risk = Committee(space)  # of the failures: other parameters matter
        pace = Committee(space)  # of the waiting times: too vaguely known to learn from, so it borrows
        pool = [tuple(row) for row in np.asarray(space.pool(20000)).tolist()]
        costs, walls, stall = {}, [], 0  # in the order of the visits

        while True:
            candidates = self.candidates(space, rng, pool, costs)
            if len(candidates) == 0:
                return
            visited = np.array(list(costs), dtype=int).reshape(-1, candidates.shape[1])
            results = np.array(list(costs.values()), dtype=float)
            # Half-full batches while there is progress: quick feedback. Stalled: more share the wait.
            # Long runs take larger batches, which bounds the CPU time.
            size = max(1, int(workers * min(1.0, 0.5 + 0.25 * stall)), len(costs) // 20)
            if np.isfinite(results).sum() < 2:  # nothing to model yet
                picks = self.spread(space, candidates, visited[-64:], max(size, self.first))
            else:
                points, options = model.encode(visited), model.encode(candidates)
                train, target = self.targets(results)
                model.learn(points[train], target, rng)
                # What is irrelevant to the run time hardly changes the code, hence its compilation.
                pace.borrow(model)
                recent = slice(-self.max_train, None)
                success, price = self.success_and_price(risk, pace, points[recent], results[recent],
                                                        np.array(walls[recent]), options, rng)
                # low rungs refine the best, high ones favour the unknown
                slots = len(costs) + np.arange(max(size, workers))
                ambition = min(self.ambition + self.ambition_step * stall, 2.5)
                rungs = ambition * (slots * GOLDEN % 1.0) ** 2
                picks = self.improve(model, points[train], target, options, success, price, rungs, size)
            best = min(costs.values(), default=math.inf)
            for start in range(0, len(picks), workers):
                batch = [tuple(row) for row in candidates[picks[start:start + workers]].tolist()]
                before = evaluate.spent
                costs.update(zip(batch, evaluate(batch)))
                walls += [math.log(max(evaluate.spent - before, 1e-9))] * len(batch)
            stall = 0 if min(costs.values()) < best else stall + 1

    def candidates(self, space, rng, pool, costs):
        """Unvisited configurations to score: of the pool as many as CPU time allows, and all around the best."""
        limit = int(np.clip(400000 / (len(costs) + 1), 600, 2500))
        fresh = [config for config in pool if config not in costs]
        some = [fresh[k] for k in rng.permutation(len(fresh))[:limit]]
        leaders = sorted(costs, key=costs.get)[:5]
        near = [tuple(config) for leader in leaders for config in space.neighbors(leader)]
        near = [config for config in near if config not in costs]
        return np.array(list(dict.fromkeys(some + near)), dtype=int)

    def spread(self, space, candidates, visited, count):
        """Far apart in Hamming distance, but rather in the middle: extremes are often slow or fail."""
        eccentric = (2 * space.encode(candidates) - 1) ** 2 @ np.array(space.ordinal, dtype=float)
        gap = (candidates[:, None] != visited).sum(axis=2).min(axis=1, initial=candidates.shape[1])
        score, picks = gap - self.centering * eccentric, []
        for _ in range(min(count, len(candidates))):
            picks.append(int(np.argmax(score)))
            gap = np.minimum(gap, (candidates != candidates[picks[-1]]).sum(axis=1))
            score = gap - self.centering * eccentric
            score[picks] = -np.inf
        return picks

    def targets(self, results):
        """Which visits the run-time model is fitted to, and their standardised costs."""
        good = np.flatnonzero(np.isfinite(results))
        leaders = good[np.argsort(results[good], kind="stable")[:20]]
        good = np.union1d(leaders, good[-self.max_train:])
        # The second logarithm keeps the slow tail from dominating; the best cost becomes 0.
        target = np.log1p(np.log(results[good] / results[good].min()))
        return good, (target - target.mean()) / (target.std() or 1.0)

    def success_and_price(self, risk, pace, points, results, walls, options, rng):
        """Probability to run, and how long a batch waits for this configuration (1: as for most batches)."""
        failed = 1.0 - np.isfinite(results)
        if 2 <= failed.sum() <= len(failed) - 2:
            risk.learn(points, (failed - failed.mean()) / failed.std(), rng)
        success = np.clip(1 - risk.predict(points, failed, options), 0.02, 1)

        # Only the slowest member explains a batch's duration; for the others it is an upper bound.
        together = walls[:, None] == walls
        times = walls
        for _ in range(3):
            fit = pace.predict(points, times, points)
            slowest = fit == np.where(together, fit, -np.inf).max(axis=1)
            times = np.where(slowest, walls, np.minimum(fit, walls))
        return success, np.exp(pace.predict(points, times, options) - walls.mean())

    def improve(self, model, points, target, options, success, price, rungs, size):
        """One rung of the ladder, and one configuration, per slot of the batch."""
        count, most, nugget = len(points), min(len(rungs), len(options)), model.nugget()
        lower = np.linalg.cholesky(model.kernel(points, points) + nugget * np.eye(count))
        white = solve_triangular(lower, target, lower=True)
        variance = (white @ white + 2) / (count + 2)
        solved = solve_triangular(lower, model.kernel(points, options), lower=True)
        below = target.min() - solved.T @ white  # predicted improvement over the best
        left = np.maximum(1 - (solved * solved).sum(axis=0), 1e-9)
        solved = np.vstack([solved, np.zeros((most, len(options)))])  # room for the picks
        picks, wait, total = [], 1.0, 0.0
        while len(picks) < min(most, size * wait):  # a long wait is shared by more configurations
            # What the kernels cannot explain belongs to the single configuration, for good: the
            # best may be found by that luck too, so it counts as spread and not as noise.
            sigma = np.sqrt(variance * (left + nugget))
            z = (below - rungs[len(picks)]) / sigma
            gain = sigma * (z * ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))
            gain = np.maximum(gain, 0) * success
            # A slow pick delays the whole batch: it must pay for the wait of those picked before.
            value = (total + gain) / price
            value[picks] = -1
            pick = int(np.argmax(value))
            total += gain[pick]
            # Compilations run side by side: whatever is faster than this pick now costs no extra time.
            price = np.maximum(price, price[pick])
            wait = max(1.0, price[pick])
            # Believe the prediction at the pick: only the uncertainty around it shrinks.
            row = model.kernel(options[pick:pick + 1], options)[0] - solved[:, pick] @ solved
            row /= math.sqrt(left[pick] + nugget)
            solved[count + len(picks)] = row
            left = np.maximum(left - row * row, 1e-9)
            picks.append(pick)
        return picks
