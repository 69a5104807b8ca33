import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr


def learnable(costs):
    """Costs as a model likes them: linear near the best, logarithmic far from it, failures as bad as the worst."""
    works = np.isfinite(costs)
    target = np.zeros(len(costs))
    if works.any():
        gap = np.log(np.maximum(costs[works], 1e-12))
        gap -= gap.min()
        target[works] = np.log1p(gap / (np.median(gap) or 1.0))
        target[~works] = target[works].max()
    return (target - target.mean()) / (target.std() + 1e-9)


def thin(order, limit, rng):
    """At most `limit` of the evaluations: the best ones for detail, random others for the global picture."""
    if len(order) <= limit:
        return order
    half = limit // 2
    return np.concatenate([order[:half], rng.choice(order[half:], limit - half, replace=False)])


def spread_out(rows, count):
    """Indices of rows that differ from each other in as many parameters as possible."""
    chosen, distance = [0], np.full(len(rows), np.inf)
    while len(chosen) < min(count, len(rows)):
        distance = np.minimum(distance, (rows != rows[chosen[-1]]).sum(axis=1))
        distance[chosen] = -1
        chosen.append(int(np.argmax(distance)))
    return chosen


def solve(covariance, y):
    """Gaussian process with an unknown constant mean and an unknown variance (drawn towards 1)."""
    inv_chol = np.linalg.inv(np.linalg.cholesky(covariance))
    inverse = inv_chol.T @ inv_chol
    mean = inverse.sum(axis=0) @ y / inverse.sum()
    weights = inverse @ (y - mean)
    variance = (1.0 + (y - mean) @ weights) / (1 + len(y))
    return inv_chol, inverse, mean, weights, variance


def loss(logs, parts, y, prior):
    """Negative log posterior of the logarithms of kernel weights and noise, with its gradient."""
    theta = np.exp(logs)
    corr = np.exp(-np.tensordot(theta[:-1], parts, 1))
    inv_chol, inverse, _, weights, variance = solve(corr + theta[-1] * np.eye(len(y)), y)
    off = logs - prior
    value = 0.5 * (1 + len(y)) * np.log(variance) - np.log(np.diag(inv_chol)).sum() + 0.5 * off @ off
    pull = inverse - np.outer(weights, weights) / variance
    slopes = np.append(np.tensordot(parts, pull * corr, 2), -np.trace(pull))
    return value, off - 0.5 * theta * slopes


def kernel(tables, a, b):
    """exp(-distance) between configurations; the distance adds one table look-up for each parameter."""
    distance = np.zeros((len(a), len(b)), np.float32)
    for i, table in tables.items():
        distance += table[:, b[:, i]][a[:, i]]
    return np.exp(-distance)


def log_improvement(u):
    """Logarithm of the expected improvement in units of sigma, stable far below the best."""
    direct = np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi) + u * ndtr(u)
    tail = -0.5 * u * u - 0.919 - 2 * np.log(np.maximum(np.abs(u), 1.0))
    return np.where(u > -5, np.log(np.maximum(direct, 1e-300)), tail)


class HalfDoubtingGP:
    """Expected improvement per second under a bounded Gaussian process that takes ordinals for smooth until shown otherwise and that only every other pick doubts after progress has ceased."""

    def __init__(self, first=4, pool_size=20000, model_points=200, fit_points=140,
                 entries=110000, shortlist_size=256, singles=28):
        self.first = first                    # evaluations before the model takes over
        self.pool_size = pool_size
        self.model_points = model_points      # evaluations the model is conditioned on
        self.fit_points = fit_points          # evaluations the kernel is learned from
        self.entries = entries                # kernel entries computed to score candidates
        self.shortlist_size = shortlist_size  # promising candidates kept from step to step
        self.singles = singles                # one more pick per step for each so many evaluations

    def __call__(self, evaluate, space, rng):
        rows = np.array(space.pool(self.pool_size), dtype=np.intp)
        rows = rows[rng.permutation(len(rows))]
        complete = len(rows) < self.pool_size
        known = set() if complete else set(map(tuple, rows.tolist()))
        expanded = set()
        unseen = np.ones(len(rows), bool)

        # A parameter may matter by changing at all and, if ordinal, by how far it moves: expect the latter.
        terms, prior = [], []
        for i, count in enumerate(space.cardinalities):
            steps = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
            smooth = count > 2 and space.ordinal[i]
            if count > 1:
                terms.append((i, (steps > 0).astype(float)))
                prior.append(0.06 if smooth else 0.2)
            if smooth:
                terms.append((i, steps / (count - 1)))
                prior.append(0.6)
        prior = np.log(prior + [0.01])  # the last one is the noise
        logs, next_fit, tables = prior, 0, {}

        visited, costs, durations = [], [], []
        shortlist, cursor = np.zeros(0, dtype=np.intp), 0
        width = max(1, int(evaluate.parallel))
        picks = spread_out(rows[:200], max(width, self.first))
        while True:
            # One by one where nothing runs side by side: it costs the same and tells each duration.
            for call in ([[p] for p in picks] if width == 1 else [picks]):
                before = evaluate.spent
                costs.extend(evaluate(rows[call]))
                durations.extend([evaluate.spent - before] * len(call))
                visited.extend(call)
                unseen[call] = False

            n, cost = len(visited), np.array(costs, dtype=float)
            order, target = np.argsort(cost, kind="stable"), learnable(cost)
            points = rows[visited]

            # Where the pool is only a sample, it grows around the best.
            leaders = [visited[b] for b in order[:3]]
            for leader in leaders:
                if not complete and leader not in expanded:
                    expanded.add(leader)
                    fresh = [c for c in space.neighbors(tuple(rows[leader].tolist())) if tuple(c) not in known]
                    if fresh:
                        known.update(map(tuple, fresh))
                        rows = np.vstack([rows, np.array(fresh, dtype=np.intp)])
                        unseen = np.append(unseen, np.ones(len(fresh), bool))
            if not unseen.any():
                return

            # Learn the kernel anew whenever the evaluations have grown by half.
            if n >= next_fit:
                next_fit = int(1.5 * n) + 1
                some = thin(order, self.fit_points, rng)
                parts = np.stack([table[np.ix_(points[some, i], points[some, i])] for i, table in terms])
                logs = minimize(loss, logs, args=(parts, target[some], prior), jac=True, method="L-BFGS-B",
                                bounds=[(p - 3, p + 3) for p in prior], options={"maxiter": 8}).x
                tables = {}
                for weight, (i, table) in zip(np.exp(logs), terms):
                    tables[i] = tables.get(i, np.float32(0)) + (weight * table).astype(np.float32)

            keep = thin(order, self.model_points, rng)
            x, y, noise = points[keep], target[keep], np.exp(logs[-1])
            covariance = kernel(tables, x, x).astype(float) + noise * np.eye(len(keep))
            inv_chol, inverse, mean, weights, variance = solve(covariance, y)
            pace = np.log(np.maximum(np.array(durations)[keep], 1e-9))
            pace_weights = inverse @ (pace - pace.mean())

            # Candidates: the shortlist, the neighbours of the best, and the next window of the pool.
            batch = width * -(-(1 + n // self.singles) // width)
            window = (cursor + np.arange(min(self.entries // len(keep), len(rows)))) % len(rows)
            cursor = (cursor + len(window)) % len(rows)
            mask = np.zeros(len(rows), bool)
            mask[window] = True
            mask[shortlist] = True
            for leader in leaders:
                mask |= (rows != rows[leader]).sum(axis=1) == 1
            candidates = np.flatnonzero(mask & unseen)
            if len(candidates) < batch:
                candidates = np.flatnonzero(unseen)

            near = kernel(tables, rows[candidates], x)
            whitened = near @ inv_chol.T.astype(np.float32)
            # The noise is part of the gain: a configuration's own deviation stays with it.
            spread = np.maximum(1 + noise - np.einsum("ij,ij->i", whitened, whitened).astype(float), noise)
            expected = mean + near @ weights
            slowness = near @ pace_weights
            stale = (n - 1 - int(np.argmin(cost))) / n

            def score(expected, spread, slowness, doubt):
                sigma = (1 + doubt) * np.sqrt(variance * spread)
                return log_improvement((target.min() - expected) / sigma) + np.log(sigma) - slowness

            top = np.argsort(-score(expected, spread, slowness, 0.0), kind="stable")
            top = top[:max(self.shortlist_size, batch)]
            shortlist, expected, spread = candidates[top], expected[top], spread[top]
            slowness, whitened, configs = slowness[top], whitened[top], rows[candidates[top]]

            # Each pick lowers the uncertainty around it, so that a batch does not crowd in one place.
            # Without progress every other pick trusts the model less; the rest keep on refining the best.
            picks, free = [], np.ones(len(top), bool)
            for _ in range(min(batch, len(top))):
                doubt = stale * ((n + len(picks)) % 2)
                j = int(np.argmax(np.where(free, score(expected, spread, slowness, doubt), -np.inf)))
                free[j] = False
                picks.append(int(shortlist[j]))
                shared = kernel(tables, configs, configs[j:j + 1])[:, 0] - whitened @ whitened[j]
                spread = np.maximum(spread - shared.astype(float) ** 2 / spread[j], noise)
