import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, ndtr


def level_gaps(space):
    """Distance between any two levels of one parameter; 0 across parameters."""
    cards = np.array(space.cardinalities)
    owner = np.repeat(np.arange(len(cards)), cards)
    position = np.concatenate([np.arange(c) / max(c - 1, 1) for c in cards])
    gap = np.abs(position[:, None] - position)
    gap[~np.array(space.ordinal, dtype=bool)[owner]] = np.inf  # categorical: all levels are far
    np.fill_diagonal(gap, 0.0)
    gap[owner[:, None] != owner] = 0.0
    return gap, owner, np.cumsum(cards) - cards


def targets(costs):
    """Standardised log costs; failures and the slow tail share one ceiling."""
    finite = np.isfinite(costs)
    if not finite.any():
        return np.zeros(len(costs))
    logs = np.log(costs[finite])
    ceiling = 3 * np.median(logs) - 2 * logs.min()  # resolution belongs to the fast side
    y = np.full(len(costs), ceiling)
    y[finite] = np.minimum(logs, ceiling)
    return (y - y.mean()) / (y.std() or 1.0)


class Surrogate:
    """Gaussian process whose kernel is a product over the parameters.

    Each factor is floor + (1 - floor) * exp(-gap / reach): the floor, the correlation left
    between distant levels, makes the product expand into main effects, pairs and so on.
    The hyperparameters are functions of theta, which is standard normal a priori.
    """

    def __init__(self, theta, gap, owner, hot, y):
        d, n = len(theta) // 2, len(y)
        floor = expit(1 + 1.5 * theta[:d])[owner][:, None]
        reach = 0.3 * np.exp(theta[d:2 * d])[owner][:, None]
        self.theta, self.hot = theta, hot
        self.log_factor = np.log(floor + (1 - floor) * np.exp(-gap / reach))
        self.noise = 1e-6 + 0.01 * np.exp(1.5 * theta[-1])
        self.chol = np.linalg.cholesky(self.kernel(hot, hot) + self.noise * np.eye(n))
        ones, target = solve_triangular(
            self.chol, np.column_stack((np.ones(n), y)), lower=True).T
        # Least-squares mean: the crowd of good points near the best must not bias it.
        self.mean = ones @ target / (ones @ ones)
        self.residual = target - self.mean * ones
        self.scale = (1 + self.residual @ self.residual) / (1 + n)
        self.evidence = (-0.5 * (n + 1) * np.log(self.scale)
                         - np.log(np.diag(self.chol)).sum())
        self.best = y.min()

    def kernel(self, hot_a, hot_b):
        return np.exp(hot_a @ self.log_factor @ hot_b.T)

    def predict(self, hot):
        self.candidates = hot
        self.solved = solve_triangular(self.chol, self.kernel(self.hot, hot), lower=True)
        self.mu = self.mean + self.residual @ self.solved
        self.var = np.maximum(1 - (self.solved ** 2).sum(axis=0), 1e-9)
        self.first_var = self.var + self.noise

    def improvement(self):
        sd = np.sqrt(self.scale * np.maximum(self.var, 1e-12))
        u = (self.best - self.mu) / sd
        gain = sd * (u * ndtr(u) + np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi))
        return np.maximum(gain, 1e-9 * sd)  # nothing promising left: the most uncertain

    def believe(self, pick):
        """Pretend that the pick came out as predicted, so that the next one differs."""
        cov = (self.kernel(self.candidates[pick:pick + 1], self.candidates)[0]
               - self.solved[:, pick] @ self.solved)
        self.var = self.var * (1 - cov ** 2 / (self.first_var[pick] * self.first_var))
        self.best = min(self.best, self.mu[pick])


class KernelPosteriorWalk:
    """Committee of Gaussian processes that random-walks through the hyperparameter posterior and picks the largest expected improvement per predicted second."""

    def __init__(self, first=4, members=3, proposals=3, fit_cap=200, work=100000, growth=25):
        self.first = first  # random configurations before the first model
        self.members = members
        self.proposals = proposals  # Metropolis steps per member and refit
        self.fit_cap = fit_cap  # evaluations that a model sees at most
        self.work = work  # evaluations seen x candidates scored, bounds the CPU time
        self.growth = growth  # a refit for every 1/growth more evaluations

    def walk(self, theta, rng, data):
        """A few Metropolis steps; the proposal keeps the prior, so only evidence decides."""
        current = Surrogate(theta, *data)
        for _ in range(self.proposals):
            moved = rng.random(len(theta)) < 0.3
            kicked = 0.8 * current.theta + 0.6 * rng.standard_normal(len(theta))
            proposal = Surrogate(np.where(moved, kicked, current.theta), *data)
            if -rng.exponential() < proposal.evidence - current.evidence:
                current = proposal
        return current

    def __call__(self, evaluate, space, rng):
        gap, owner, start = level_gaps(space)
        width = max(1, evaluate.parallel)
        costs, durations = {}, []  # in the same order

        def one_hot(configs):
            hot = np.zeros((len(configs), len(owner)))
            hot[np.arange(len(configs))[:, None], np.asarray(configs) + start] = 1.0
            return hot

        def measure(configs):
            for i in range(0, len(configs), width):
                batch = configs[i:i + width]
                before = evaluate.spent
                costs.update(zip(batch, evaluate(batch)))
                durations.extend([evaluate.spent - before] * len(batch))

        measure([tuple(c) for c in space.sample(max(self.first, width))])
        pool = [tuple(c) for c in space.pool(20000).tolist()]
        thetas = [rng.standard_normal(2 * len(start) + 1) for _ in range(self.members)]
        while True:
            measured, values = list(costs), np.array(list(costs.values()))
            order, half = np.argsort(values, kind="stable"), self.fit_cap // 2
            # The best half in full, the rest as a fresh random sample: local detail, global shape.
            kept = np.concatenate((order[:half], rng.permutation(order[half:])[:half]))

            pool = [c for c in pool if c not in costs]
            near = [tuple(c) for i in order[:3] for c in space.neighbors(measured[i])]
            far = [pool[i] for i in rng.permutation(len(pool))[:self.work // len(kept)]]
            candidates = [c for c in dict.fromkeys(near + far) if c not in costs]
            if not candidates:
                return  # everything has been visited
            hot = one_hot(candidates)

            data = gap, owner, one_hot([measured[i] for i in kept]), targets(values)[kept]
            committee = [self.walk(theta, rng, data) for theta in thetas]
            thetas = [member.theta for member in committee]
            for member in committee:
                member.predict(hot)

            # Main effects foretell how long a configuration takes to compile and run.
            seen_hot = one_hot(measured)
            log_time = np.log(np.maximum(durations, 1e-9))
            effects = np.linalg.solve(seen_hot.T @ seen_hot + np.eye(len(owner)),
                                      seen_hot.T @ (log_time - log_time.mean()))
            slowness = hot @ effects

            picks = []
            batch_size = width * (1 + len(measured) // (self.growth * width))
            for _ in range(min(batch_size, len(candidates))):
                gain = np.mean([member.improvement() for member in committee], axis=0)
                score = np.log(gain) - slowness
                score[picks] = -np.inf
                picks.append(int(np.argmax(score)))
                for member in committee:
                    member.believe(picks[-1])
            measure([candidates[i] for i in picks])
