import math
from collections import Counter

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr


class Kriging:
    """Gaussian process on binary codes that learns how much each parameter, and noise, matters."""

    def __init__(self, owner, span, parameters, far):
        self.owner, self.span = owner, span  # of each column: its parameter, its share of the distance
        self.far = far  # what to expect far from everything: counts as one observation
        self.usual = np.log(np.append(np.full(parameters, 3.0 / parameters), 0.03))
        self.logs = self.usual.copy()  # log decay rate of each parameter, log noise

    def kernel(self, a, b):
        weight = self.span * np.exp(self.logs[self.owner])
        distance = (a @ weight)[:, None] + b @ weight - 2.0 * (a * weight) @ b.T
        return np.exp(-np.maximum(distance, 0.0))

    def noise(self):
        return math.exp(self.logs[-1]) + 1e-3  # many clones would talk it down to nothing

    def learn(self, x, y, steps=3):
        """Climb the posterior of the log rates; binary codes make its slope two matrix products."""
        for _ in range(steps):
            kernel = self.kernel(x, x)
            inverse = np.linalg.inv(kernel + self.noise() * np.eye(len(x)))
            ones = inverse.sum(axis=0)
            rest = y - (ones @ y + self.far) / (ones.sum() + 1.0)
            weights = inverse @ rest
            pull = np.outer(weights, weights) * (len(y) + 1) / (rest @ weights + 1.0) - inverse
            shared = pull * kernel
            columns = shared.sum(axis=0) @ x - (x * (shared @ x)).sum(axis=0)
            rates = np.exp(self.logs)
            slope = -rates[:-1] * np.bincount(self.owner, self.span * columns, minlength=len(rates) - 1)
            slope = np.append(slope, 0.5 * rates[-1] * np.trace(pull)) + self.usual - self.logs
            # the curvature grows with the data: so does the caution
            self.logs = self.logs + np.clip(slope / (1.0 + 0.25 * len(y)), -0.5, 0.5)

    def predict(self, x, y, blind, points):
        """Means at the points, prior variance, and a basis whose squares are the shares of it that are explained.
        The blind rows explain, but say nothing of the mean: as they come last, one factorisation serves both."""
        seen, n = np.vstack([x, blind]), len(x)
        root = np.linalg.cholesky(self.kernel(seen, seen) + self.noise() * np.eye(len(seen)))
        basis = solve_triangular(root, self.kernel(seen, points), lower=True)
        ones, values = solve_triangular(root[:n, :n], np.column_stack([np.ones(n), y]), lower=True).T
        center = (ones @ values + self.far) / (ones @ ones + 1.0)
        rest = values - center * ones
        return center + rest @ basis[:n], (rest @ rest + 1.0) / (n + 1), basis


def gain(margin, spread):
    """Expected improvement of a lognormal gap: differences that nobody feels are worth nothing."""
    z = margin / spread
    return np.maximum(ndtr(z) - np.exp(0.5 * spread**2 - margin) * ndtr(z - spread), 1e-9)


class RefineRoveDetour:
    """Refine the best by expected improvement per second, and the longer it stands still, measured against all that the
    run has gained, the more plans leave it: rovers climb in what is unlike the known summits, and detours hold one value
    that the best lacks, one that matters and whose champion is fast, and adapt all else to it. Both are judged by the
    best of their own region instead of the leader."""

    def __init__(self, pace=0.0125, brood=192, keep=128, growth=1.15, resolution=0.002, penalty=2.5,
                 notable=0.02, urge=3.0, alike=0.4):
        self.pace = pace  # share of the budget that one plan is for
        self.brood = brood  # children that a plan considers
        self.keep = keep  # parents at most; the models see little more than this many results
        self.growth = growth  # of the archive, between two lessons of the models
        self.resolution = resolution  # differences of log time below this one hardly count
        self.penalty = penalty  # a failure is charged as if it took exp(penalty) times as long
        self.notable = notable  # progress below this share of all that was gained is standing still
        self.urge = urge  # how fast the share of plans that leave the best grows while it stands still
        self.alike = alike  # likeness (1: same in all that matters) from which on two are of one region

    def __call__(self, evaluate, space, rng):
        self.space, self.rng = space, rng
        self.cards, self.ordinal = np.array(space.cardinalities), np.array(space.ordinal, dtype=bool)
        # ordinal: one column for each threshold, so that distance counts steps; categorical: one for each value
        self.codes = [np.tri(c, c - 1, -1) if o else np.eye(c) for c, o in zip(self.cards, self.ordinal)]
        widths = [code.shape[1] for code in self.codes]
        owner = np.repeat(np.arange(len(widths)), widths)
        span = np.where(self.ordinal, np.maximum(self.cards - 1, 1) ** -0.5, 0.5)[owner]
        # far away, kernels are e times slower, and several times as expensive to try
        self.speed, self.price = (Kriging(owner, span, len(widths), far) for far in (0.0, 2.0))
        self.due = 0
        self.asked, self.sent = set(), {}  # all that was submitted; when what is on its way was
        self.configs, self.costs, self.took, self.ended = [], [], [], []
        self.near = []  # neighbours of the best
        self.tried = Counter()  # detours, by parameter and value

        best, queue = math.inf, []
        self.send(evaluate, space.sample(evaluate.parallel))
        while done := evaluate.wait():
            leader, now = None, evaluate.spent
            for config, cost in done:
                self.configs.append(config)
                self.costs.append(cost)
                self.took.append(now - self.sent.pop(config, now))
                self.ended.append(now)
                if cost < best:
                    best, leader = cost, config
            if leader is not None:  # what was planned around the former best is old news
                self.near, queue = list(space.neighbors(leader)), []
            while evaluate.pending < evaluate.parallel:
                queue = queue or self.plan(evaluate.spent)
                if not queue:
                    break
                self.send(evaluate, [queue.pop(0)])

    def send(self, evaluate, configs):
        self.asked.update(configs)
        self.sent.update(dict.fromkeys(configs, evaluate.spent))
        evaluate.submit(configs)

    def plan(self, spent):
        """New configurations for a share of the budget, early on for less; none when nothing is left to visit."""
        count = max(4, int(len(self.costs) * min(0.25, self.pace / (spent + 1e-9))))
        picks = []
        if min(self.costs) < math.inf:
            leave = self.rng.random() < self.unrest(spent)
            picks = self.promising(count, self.rng.choice(["rove", "detour"]) if leave else "refine")
        for number in (32, 1024):
            if not picks:
                picks = [config for config in self.space.sample(number) if config not in self.asked][:count]
        return picks

    def unrest(self, spent):
        """Share of the plans that leave the best: grows while it stands still, shrinks as there is less time to profit.
        What counts as standing still depends on the kernel: of a factor of 30, the last per cents are a crawl."""
        so_far = np.minimum.accumulate(self.costs)
        gained = math.log(so_far[np.isfinite(so_far)][0] / so_far[-1])
        since = self.ended[int(np.argmax(so_far <= so_far[-1] * math.exp(self.notable * gained)))]
        return min(0.5, self.urge * (spent - since) * (1.0 - spent))

    def elsewhere(self, ranked):
        """Summits of the best region or of several, what is unlike all of these, and the likeness that this means."""
        table = self.embed([self.configs[i] for i in ranked])
        likeness, summits = np.zeros(len(ranked)), []
        # mostly only the best is left behind; at times further summits are, so that none of them holds the rovers up
        for _ in range(self.rng.geometric(0.5)):
            unlike = np.flatnonzero(likeness < self.alike)
            if len(unlike) == 0:
                break
            summits.append(ranked[unlike[0]])
            likeness = np.maximum(likeness, self.speed.kernel(table, table[unlike[:1]])[:, 0])
        # when all is of one region, its outskirts have to do
        bound = max(self.alike, float(np.quantile(likeness, 0.1)))
        return summits, ranked[likeness <= bound], bound

    def detour(self, ranked, levels):
        """A value to hold, as (parameter, value), and the results that have it: the best lacks it, it matters, its
        champion is fast, and it was seldom held before."""
        table = np.array([self.configs[i] for i in ranked])
        # the first row with a value is its champion; that of the values of the best is the best, row 0
        options = [(at, int(value), int(row)) for at, column in enumerate(table.T)
                   for value, row in zip(*np.unique(column, return_index=True)) if row > 0]
        if not options:
            return None, ranked
        at, values, champions = np.array(options).T
        variants = np.repeat(table[:1], len(options), axis=0)
        variants[np.arange(len(options)), at] = values
        matters = 1.0 - self.speed.kernel(self.embed(variants), self.embed(table[:1]))[:, 0]
        tries = np.array([self.tried[option[:2]] for option in options])
        held = options[int(np.argmax(matters * levels[0] / levels[champions] / (1.0 + tries)))][:2]
        self.tried[held] += 1
        return held, ranked[table[:, held[0]] == held[1]]

    def promising(self, count, mode):
        cost, took = np.array(self.costs), np.array(self.took)
        # the same time to the last digit is the same code: of such clones only the first may breed
        levels, ranked = np.unique(cost, return_index=True)
        working = int(np.isfinite(levels).sum())
        levels, ranked = levels[:working], ranked[:working]
        focus, summits, bound, held = ranked, [], 1.0, None
        if mode == "rove":
            summits, focus, bound = self.elsewhere(ranked[: 3 * self.keep])
        elif mode == "detour":
            held, focus = self.detour(ranked[: 8 * self.keep], levels)
            summits = ranked[:1]
        # those who leave also jump off from the summits left behind, and mix them with what lies elsewhere
        breeders = [*focus[:1], *summits, *focus[1 : self.keep]]
        ideas = self.near + self.children(np.array([self.configs[i] for i in breeders]))
        if held:
            at, value = held
            ideas = [idea[:at] + (value,) + idea[at + 1 :] for idea in ideas]
        ideas = [config for config in dict.fromkeys(ideas) if config not in self.asked]
        points = self.embed(ideas)
        if mode == "rove":
            peaks = self.embed([self.configs[i] for i in summits])
            allowed = np.flatnonzero(self.speed.kernel(points, peaks).max(axis=1) <= bound)
            ideas, points = [ideas[i] for i in allowed], points[allowed]
        if not ideas:
            return []

        # the latest show, clones included, what does nothing
        quarter = self.keep // 4
        chosen = np.append(ranked[:quarter], focus[: 2 * quarter])
        rows = np.union1d(chosen, np.arange(len(cost))[-2 * quarter :])
        x, works = self.embed([self.configs[i] for i in rows]), np.isfinite(cost[rows])
        # logs of the gap to the best: as sharp among the last per cents as among the factors far away, but no
        # sharper than what was gained of late, as more of that is to be had
        recent = math.log(np.minimum.accumulate(cost)[7 * len(cost) // 8] / levels[0])
        scale = max(float(np.quantile(np.log(levels / levels[0]), 0.1)), recent, self.resolution)
        scale = min(scale, 1.0)
        target = np.log(np.log(cost[rows][works] / levels[0]) + scale)
        # what was given took no time, which tells nothing; nothing else is free, as planning it is not
        timed = took > 0.0
        typical = took[timed].mean() if timed.any() else 1.0
        charge = np.log(np.where(timed, np.maximum(took / typical, 0.1), 1.0))[rows] + self.penalty * ~works
        if len(cost) >= self.due:
            self.due = int(self.growth * len(cost)) + 1
            self.speed.learn(x[works], target)
            self.price.learn(x, charge)

        # failures and whatever is on its way leave the mean alone, but less to find out nearby
        blind = np.vstack([x[~works], self.embed(list(self.sent))])
        mean, variance, basis = self.speed.predict(x[works], target, blind, points)
        price = np.exp(self.price.predict(x, charge, x[:0], points)[0])
        # those who leave have to beat the best of their own, and gain by each share of the gap that they close
        margin = math.log(math.log(cost[focus[0]] / levels[0]) + scale) - mean
        left = np.maximum(1.0 - (basis**2).sum(axis=0), 1e-6)
        # only a short list is worth the bookkeeping of what each pick tells about the others
        short = np.argsort(-gain(margin, np.sqrt(variance * left)) / price)[: 2 * count + 32]
        points, basis, margin, price = points[short], basis[:, short], margin[short], price[short]
        covariance = self.speed.kernel(points, points) - basis.T @ basis
        free, picks = np.ones(len(short), dtype=bool), []
        while free.any() and len(picks) < count:
            left = np.maximum(covariance.diagonal(), 1e-6)
            j = int(np.argmax(np.where(free, gain(margin, np.sqrt(variance * left)) / price, -1.0)))
            free[j] = False
            idea = ideas[short[j]]
            config = self.space.repair(idea)  # only now: it is slow
            if config in self.asked:
                self.asked.add(idea)  # another name for it: not to be looked at again
            elif config not in picks:
                picks.append(config)
                covariance -= np.outer(covariance[j], covariance[j]) / (left[j] + self.speed.noise())
        return picks

    def embed(self, configs):
        table = np.array(configs, dtype=int).reshape(-1, len(self.cards))
        return np.hstack([code[column] for code, column in zip(self.codes, table.T)])

    def children(self, parents):
        """Pairs mixed or continued, and parents with mostly few parameters changed; not normalised."""
        rng, d, shape = self.rng, len(self.cards), (self.brood, len(self.cards))
        # ranks on a logarithmic scale: often the best, yet others have their chance
        ranks = ((len(parents) + 1) ** (rng.random((2, self.brood)) ** 2)).astype(int) - 1
        mothers, fathers = parents[ranks]
        # the step from one parent to the other may be worth repeating, in several parameters at once
        beyond = np.where(self.ordinal, np.clip(2 * mothers - fathers, 0, self.cards - 1), mothers)
        mates = np.where(rng.random((self.brood, 1)) < 0.4, beyond, fathers)
        crossed = rng.random((self.brood, 1)) < 0.4
        child = np.where(crossed & (rng.random(shape) < 0.5), mates, mothers)
        changes = np.floor((1.0 + d / 2.0) ** rng.random((self.brood, 1)))
        mutated = ~crossed & (rng.random(shape).argsort(axis=1) < changes)
        step = np.clip(child + rng.choice([-1, 1], size=shape), 0, self.cards - 1)
        value = rng.integers(self.cards, size=shape)
        value = np.where(self.ordinal & (rng.random(shape) < 0.5), step, value)
        return list(map(tuple, np.where(mutated, value, child).tolist()))
