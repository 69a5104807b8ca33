import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr

FLOORS = (0.97, 0.88, 0.7, 0.4, 0.15)  # correlation left when only this parameter differs
REACHES = (0.0, 0.25, 1.0)  # how far, as a share of its range, near values resemble each other


def table_options(cardinality, ordinal):
    """All (penalty, table) a parameter may have; the middle one is the default."""
    index = np.arange(cardinality)
    distance = np.abs(index[:, None] - index) / max(cardinality - 1, 1)
    options = []
    for step, floor in enumerate(FLOORS):
        for reach in REACHES if ordinal and cardinality > 2 else (0.0,):
            near = np.exp(-distance / reach) if reach else (distance == 0)
            table = floor + (1 - floor) * near
            options.append(((step - len(FLOORS) // 2) ** 2 / 2, table.astype(np.float32)))
    return options


def correlation(tables, left, right):
    product = np.ones((len(left), len(right)), dtype=np.float32)
    for table, a, b in zip(tables, left.T, right.T):
        if len(table) > 1:
            product *= table[:, b][a]
    return product


def condition(kernel, targets, nugget):
    """Cholesky factor, generalised least-squares means and whitened residuals."""
    factor = np.linalg.cholesky(kernel + nugget * np.eye(len(kernel)))
    columns = np.column_stack([np.ones(len(kernel)), targets])
    white = solve_triangular(factor, columns, lower=True, check_finite=False)
    one, white = white[:, :1], white[:, 1:]
    centre = one.T @ white / (one.T @ one)
    return factor, centre, white - one * centre


def evidence(kernel, target, nugget):
    factor, _, residual = condition(kernel, target, nugget)
    fit = 0.5 * len(kernel) * math.log(np.mean(residual ** 2) + 1e-9)
    return -fit - np.log(np.diag(factor)).sum()


def predict(tables, points, targets, pool, nugget):
    """One member's view of the pool; the closest point alone bounds its variance from above."""
    kernel = correlation(tables, points, points).astype(float)
    factor, centre, residual = condition(kernel, targets, nugget)
    spread = np.sqrt(np.mean(residual[:, :1] ** 2, axis=0)) + 1e-9
    weights = solve_triangular(factor, residual, lower=True, trans=1, check_finite=False)
    cross = correlation(tables, pool, points)
    mean = (centre + cross @ weights.astype(np.float32)).T
    return factor.astype(np.float32), cross, spread, mean, 1 - cross.max(axis=1) ** 2


def promise(mean, variance, best, spread):
    """Logarithm of the expected improvement per second, summed over the members (rows)."""
    deviation = spread * np.sqrt(np.maximum(variance, 1e-6))
    u = (best - mean[:, 0]) / deviation
    near = np.maximum(u, -5.0)  # below, the Gaussian tail goes on without underflow
    gain = np.exp(-near ** 2 / 2) / math.sqrt(2 * math.pi) + near * ndtr(near)
    score = np.log(deviation * gain) - (u ** 2 - near ** 2) / 2 - mean[:, 1]
    return np.logaddexp.reduce(score, axis=0)


def softener(costs):
    """Map costs to logarithms in which the slow side is compressed and failures are slowest."""
    finite = costs[np.isfinite(costs)]
    logs = np.log(np.maximum(finite, 1e-12)) if len(finite) else np.zeros(1)
    middle, worst = np.median(logs), logs.max()
    scale = max(middle - logs.min(), 1e-3)

    def soften(values):
        x = (np.minimum(np.log(np.maximum(values, 1e-12)), worst) - middle) / scale
        return np.where(x > 0, np.log1p(np.maximum(x, 0)), x)

    return soften


class TableCommitteeGainPerSecond:
    """A committee of Gaussian processes, whose parameter tables are drawn from their posterior instead of being chosen, predicts run time and evaluation time, and what promises the most improvement per second on average over the committee is evaluated next."""

    def __init__(self, start=5, proposals=40, tune_points=100, candidates=800,
                 most_points=800, growth=0.35, nugget=0.01, members=4, doubt=240):
        self.start = start
        self.proposals = proposals
        self.tune_points = tune_points
        self.candidates = candidates
        self.most_points = most_points
        self.growth = growth
        self.nugget = nugget
        self.members = members
        self.doubt = doubt

    def walk(self, options, chosen, points, target, rng):
        """Metropolis steps of one member through the posterior of its tables."""
        rows = rng.permutation(len(points))[:self.tune_points]  # they stand for all points
        weight, points, target = len(points) / len(rows), points[rows], target[rows]
        tables = [options[i][k][1] for i, k in enumerate(chosen)]
        kernel = correlation(tables, points, points).astype(float)
        value = evidence(kernel, target, self.nugget)
        active = [i for i, table in enumerate(tables) if len(table) > 1]
        for _ in range(self.proposals):
            i = active[rng.integers(len(active))]
            k = int(rng.integers(len(options[i])))
            old_penalty, old = options[i][chosen[i]]
            new_penalty, new = options[i][k]
            column = points[:, i]
            trial = kernel * (new.astype(float) / old)[:, column][column]
            trial_value = evidence(trial, target, self.nugget)
            if weight * (trial_value - value) + old_penalty - new_penalty > -rng.exponential():
                kernel, value, chosen[i] = trial, trial_value, k
        return [options[i][k][1] for i, k in enumerate(chosen)]

    def __call__(self, evaluate, space, rng):
        width = evaluate.parallel
        configs, costs, log_times = [], [], []

        def observe(batch):
            before = evaluate.spent
            costs.extend(evaluate(batch))
            time = max(evaluate.spent - before, 1e-9) / len(batch)
            configs.extend(batch)
            log_times.extend([math.log(time)] * len(batch))

        first = space.sample(max(self.start, width))
        for i in range(0, len(first), width):
            observe(first[i:i + width])

        pool = rng.permutation(space.pool(20000))
        visited = set(configs)
        pool = pool[np.array([tuple(row) not in visited for row in pool.tolist()], dtype=bool)]
        known = visited | set(map(tuple, pool.tolist()))
        options = [table_options(c, o) for c, o in zip(space.cardinalities, space.ordinal)]
        chosen = [[len(tables) // 2 for tables in options] for _ in range(self.members)]

        while True:
            # Where the pool is only a sample of the space, the leaders' neighbours join it.
            leaders = np.argsort(costs, kind="stable")[:5]
            nearby = sorted({c for i in leaders for c in space.neighbors(configs[i])} - known)
            if nearby:
                known.update(nearby)
                pool = np.vstack([pool, np.array(nearby)])
            if not len(pool):
                return

            # Bound the model: the better half of its points are the best, the others random.
            order = np.argsort(costs, kind="stable")
            half = self.most_points // 2
            if len(order) > self.most_points:
                order = np.concatenate([order[:half], rng.permutation(order[half:])[:half]])
            soften = softener(np.array(costs))
            points = np.array(configs)[order]
            targets = np.column_stack([soften(np.array(costs)), log_times])[order]
            best = targets[:, 0].min()

            # Few results fit many tables, so members disagree; many results need fewer members.
            team = chosen[:max(1, self.doubt // len(costs))]
            tables = [self.walk(options, choice, points, targets[:, 0], rng) for choice in team]
            views = [predict(t, points, targets, pool, self.nugget) for t in tables]
            factors, crosses, *rest = zip(*views)
            spread, mean, bound = map(np.array, rest)
            score = promise(mean, bound, best, spread)
            picked = np.argsort(-score, kind="stable")[:self.candidates]
            shortlist, mean = pool[picked], mean[:, :, picked]

            # Exact posteriors of the shortlist, extended by one row per further evaluation.
            rows = len(points)
            until = len(costs) + max(1, int(self.growth * rows))
            room = rows + until - len(costs) + width
            root = np.empty((len(team), room, len(picked)), dtype=np.float32)
            for block, factor, cross in zip(root, factors, crosses):
                block[:rows] = solve_triangular(factor, cross[picked].T, lower=True,
                                                check_finite=False)
            variance = 1 - (root[:, :rows] ** 2).sum(axis=1)
            free = np.ones(len(picked), dtype=bool)
            while len(costs) < until and free.any():
                batch = []
                while len(batch) < width and free.any():
                    score = promise(mean, variance, best, spread)
                    j = int(np.argmax(np.where(free, score, -np.inf)))
                    free[j] = False
                    prior = np.hstack([correlation(t, shortlist, shortlist[[j]]) for t in tables])
                    covariance = prior.T - (root[:, None, :rows, j] @ root[:, :rows])[:, 0]
                    step = np.sqrt(np.maximum(variance[:, [j]], 0.0) + self.nugget)
                    root[:, rows] = covariance / step
                    variance = variance - root[:, rows] ** 2  # known before the cost is
                    batch.append((j, rows, step))
                    rows += 1
                observe([tuple(shortlist[j].tolist()) for j, _, _ in batch])
                results = soften(np.array(costs[-len(batch):]))
                for (j, row, step), result in zip(batch, results):
                    surprise = (np.array([result, log_times[-1]]) - mean[:, :, j]) / step
                    mean += surprise[:, :, None] * root[:, None, row]
                best = min(best, results.min())
            pool = np.delete(pool, picked[~free], axis=0)
