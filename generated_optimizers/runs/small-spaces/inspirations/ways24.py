import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri


def kernel(a, b, main):
    """Interactions decay with the squared distance of the codes; main effects add up over the parameters.

    All codes are equally long, so that both parts depend on distances only and no corner is preferred."""
    dots = a @ b.T
    return main * dots + np.exp(-np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * dots, 0))


def misfit(theta, prior, codes, group, y):
    """Negative log posterior of the log weights, log share of main effects and log noise, with its gradient."""
    a, away = codes * np.exp(theta[group] / 2), theta - prior
    main, noise = np.exp(theta[-2:])
    decay = kernel(a, a, 0.0)
    gram = 1 + decay + main * (a @ a.T) + noise * np.eye(len(y))  # 1: the level of the space is unknown, too
    inverse = np.linalg.inv(gram)
    alpha = inverse @ y
    variance = (1 + y @ alpha) / (1 + len(y))
    slope = inverse - np.outer(alpha, alpha) / variance
    pull = slope * decay
    linear = main / 2 * ((slope @ a) * a).sum(0)
    by_column = ((pull @ a) * a).sum(0) - pull.sum(1) @ (a * a) + linear
    by_weight = np.bincount(group, by_column, len(theta) - 2)
    value = (1 + len(y)) * np.log(variance) + np.linalg.slogdet(gram)[1] + away @ away
    return value / 2, np.append(by_weight, [linear.sum(), noise * np.trace(slope) / 2]) + away


def representatives(points, count):
    """Greedy design: each point explains most of what is unknown of all others, so extremes come late."""
    shared, chosen = kernel(points, points, 0.0), []
    for _ in range(min(count, len(points))):
        value = (shared * shared).sum(0) / (np.diag(shared) + 0.01)
        value[chosen] = -1
        pick = int(np.argmax(value))
        shared = shared - np.outer(shared[pick], shared[pick]) / (shared[pick, pick] + 0.01)
        chosen.append(pick)
    return chosen


def durations(a, b, call, took):
    """How long each of b takes, from log times of whole calls: only the slowest member is held to its call's."""
    similar, label = kernel(a, a, 1.0), took
    smoother = np.linalg.inv(similar + np.eye(len(a)))
    for _ in range(5):
        level = label.mean()
        weights = smoother @ (label - level)
        belief, slowest = similar @ weights, np.full(call.max() + 1, -np.inf)
        np.maximum.at(slowest, call, belief)
        label = took + belief - slowest[call]
    return np.exp(level + weights @ kernel(a, b, 1.0))


def targets(costs, seen):
    """Log costs, -1 at the best of `seen` and 0 at their median; the slow half is compressed."""
    finite = seen[np.isfinite(seen)]
    logs = np.log(np.maximum(finite, 1e-12)) if len(finite) else np.zeros(1)
    middle = np.median(logs)
    unit = max(middle - logs.min(), 1e-3)
    gaps = (np.log(np.maximum(costs, 1e-12)) - middle) / unit
    # A failure is no worse than a slow one: the best are often next to what no longer fits the device.
    ceiling = np.log1p(max(1.0, (np.quantile(logs, 0.75) - middle) / unit))
    return np.minimum(np.where(gaps > 0, np.log1p(np.maximum(gaps, 0)), gaps), ceiling)


def foresee(means, cov, best, sizes, contenders):
    """Value of measuring each candidate, and what a surprise at it (column) tells of the others (rows).

    `means` and `best` have a column for each fantasy of what the members chosen so far turn out to be."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-9))
    effect, z = cov / sd, (best - means) / sd[:, None]
    # this call: expected improvement on the best measured
    now = sd * np.maximum(z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi), 0).mean(1)
    # next call: how far the lowest mean falls once the candidate is known; a surprise is weighed
    # against its opposite, so that knowledge is never worth less than nothing
    likely = np.argsort(means.mean(1) - sd, kind="stable")[:contenders]
    after = np.zeros_like(means)
    for surprise in (sizes, -sizes):
        others = (means[likely][:, None] + effect[likely][:, :, None] * surprise).min(0)
        after += np.minimum(np.minimum(others, means + sd[:, None] * surprise), best) / 2
    return now + (np.minimum(best, means[likely].min(0)) - after).mean(1), effect


class MainEffectForesight:
    """Foresee per second what a measurement wins now and lets the next one win, with one GP whose learned code
    weights serve twice, adding up main effects and letting interactions decay, conditioned on real results
    one by one or on fantasies while a call is filled."""

    def __init__(self, model_size=160, candidate_limit=2000, elite=8, shortlist=48, contenders=16, fantasies=24):
        self.model_size, self.candidate_limit, self.elite = model_size, candidate_limit, elite
        self.shortlist, self.contenders, self.fantasies = shortlist, contenders, fantasies

    def __call__(self, evaluate, space, rng):
        self.evaluate, self.rng, self.width = evaluate, rng, max(1, evaluate.parallel)
        self.cost, self.calls, self.took, self.promising = {}, [], [], []
        self._prepare(space)
        pool = space.sample(20_000)
        some = pool[:800]
        # half a round: fewer members meet the slow tail of compile times, still unknown
        picks = representatives(self._codes(some) * self.plain, max(self.width // 2, 5))
        design = [some[i] for i in picks]
        for call in [design] if self.width > 1 else [[c] for c in design]:
            self._measure(call)
        while True:
            fresh = [c for c in pool if c not in self.cost]
            if len(pool) > self.candidate_limit:  # a random part, and what is or was promising
                part = [fresh[i] for i in rng.permutation(len(fresh))[: self.candidate_limit]]
                top = sorted(self.cost, key=self.cost.get)[: self.elite]
                near = [c for best in top for c in space.neighbors(best)] + self.promising
                fresh = [c for c in dict.fromkeys(part + near) if c not in self.cost]
            if not fresh:
                return
            # early results decide most: short calls first, several rounds only once one adds little knowledge
            n = len(self.cost)
            rounds = max(1, n // (8 * self.width))
            self._advance(fresh, min(max(1, self.width // 4, n // 3), self.width * rounds))

    def _prepare(self, space):
        """Codes of all values: one distance for being unequal, along ordinals one for being far apart as well."""
        self.tables, group, prior = [], [], []
        # more parameters that vary: each matters less a priori, so that the total decay stays the same
        rate = np.log(3 / max(1, sum(size > 1 for size in space.cardinalities)))
        for i, (values, ordinal) in enumerate(zip(space.values, space.ordinal, strict=True)):
            size, blocks = len(values), [np.eye(len(values)) * np.sqrt(0.5)]
            if ordinal:  # sizes act by their ratios (arcsinh: a log that admits 0), yet each step counts
                logs = np.arcsinh(np.array(values, dtype=float))
                ratios = np.diff(logs) / ((logs[-1] - logs[0]) or 1.0)
                steps = np.tri(size, size - 1, -1) - 0.5  # signs: every value's code is equally long
                blocks.append(steps * np.sqrt((ratios + 1 / max(1, size - 1)) / 2))
            self.tables.append(np.hstack(blocks))
            group += [2 * i] * size + [2 * i + 1] * (self.tables[-1].shape[1] - size)
            # few samples share one of many ordinal values: at first, nearby values speak for each other;
            # both distances together weigh as much as the single one of a categorical parameter
            prior += [rate - ordinal * np.log(size), rate + np.log1p(-1 / max(2, size))]
        # main effects explain about half a priori
        self.group, self.prior = np.array(group), np.array(prior + [0.0, np.log(0.01)])
        self.theta, self.fitted_at = self.prior, 0
        self.plain = np.exp(self.prior[self.group] / 2)

    def _codes(self, configs):
        configs = np.array(configs)
        return np.hstack([table[configs[:, i]] for i, table in enumerate(self.tables)])

    def _measure(self, batch):
        before, rounds = self.evaluate.spent, -(-len(batch) // self.width)
        costs = self.evaluate(batch)
        self.took += [np.log(max(self.evaluate.spent - before, 1e-9) / rounds)] * len(batch)
        self.calls += [len(self.cost)] * len(batch)
        self.cost.update(zip(batch, costs, strict=True))
        return np.array(costs)

    def _advance(self, fresh, count):
        """Choose and measure up to `count` of the fresh configurations with one posterior, kept up to date."""
        known, cost, half = list(self.cost), np.array(list(self.cost.values())), self.model_size // 2
        target = targets(cost, cost)
        order = np.argsort(target, kind="stable")
        rows = np.concatenate([order[:half], self.rng.permutation(order[half:])[:half]])
        level = target[rows].mean()
        y, a, b = target[rows] - level, self._codes([known[i] for i in rows]), self._codes(fresh)
        if len(known) >= 1.3 * self.fitted_at:
            bounds, self.fitted_at = [(p - 3, p + 3) for p in self.prior], len(known)
            self.theta = minimize(misfit, self.theta, (self.prior, a, self.group, y), jac=True,
                                  bounds=bounds, options={"maxiter": 10}).x
        scale, (main, noise) = np.exp(self.theta[self.group] / 2), np.exp(self.theta[-2:])
        seen, open_ = a * scale, b * scale
        inverse = np.linalg.inv(1 + kernel(seen, seen, main) + noise * np.eye(len(y)))
        cross = 1 + kernel(seen, open_, main)
        solved = inverse @ cross
        center, variance = level + y @ solved, (1 + y @ inverse @ y) / (1 + len(y))
        unknown = 2 + main * (open_ * open_).sum(1) - (cross * solved).sum(0)
        spread = np.sqrt(variance * np.maximum(unknown, 1e-9))
        # several degrees of optimism: the greatest alone would fill the list with far corners
        ranked = [np.argsort(center - k * spread, kind="stable")[: self.shortlist] for k in (0, 1, 2)]
        short = np.unique(np.concatenate(ranked))
        short = short[np.argsort((center - spread)[short], kind="stable")]
        self.promising, final = [fresh[i] for i in short], open_[short]
        # measurements repeat: the noise is roughness that belongs to each configuration and can be won
        cov = 1 + kernel(final, final, main) + noise * np.eye(len(short)) - cross[:, short].T @ solved[:, short]
        cov = variance * cov
        call, took = np.array(self.calls)[rows], np.array(self.took)[rows]
        time = durations(a * self.plain, b[short] * self.plain, call, took)
        # where results are real, fantasies stand for the next one only, and fewer will do
        columns = self.fantasies if self.width > 1 else max(1, self.fantasies // 3)
        sizes = ndtri(0.5 + (np.arange(columns) + 0.5) / columns / 2)  # equally likely sizes of a surprise
        means, best = np.repeat(center[short][:, None], columns, 1), np.full(columns, target.min())
        total, slowest, chosen = 0.0, 0.0, []
        while len(chosen) < min(count, len(short)):
            sizes = self.rng.permutation(sizes)
            value, effect = foresee(means, cov, best, sizes, self.contenders)
            rate = (total + value) / np.maximum(slowest, time)  # the slowest member holds up all others
            rate[chosen] = -1
            pick = int(np.argmax(rate))
            chosen.append(pick)
            if self.width == 1:
                result = self._measure([self.promising[pick]])
                if result[0] < cost.min():
                    return  # a new best: its neighbours may be missing from the shortlist
                surprise = (targets(result, cost) - means[pick, 0]) / effect[pick, pick]
            else:  # imagine its result in every fantasy and learn from it
                total, slowest = total + value[pick], max(slowest, time[pick])
                surprise = sizes * self.rng.choice([-1.0, 1.0], columns)
            means = means + np.outer(effect[:, pick], surprise)
            cov = cov - np.outer(effect[:, pick], effect[:, pick])
            best = np.minimum(best, means[pick])
        if self.width > 1:
            self._measure([self.promising[i] for i in chosen])
