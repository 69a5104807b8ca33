"""Random search without replacement: what the score calls 0."""

MAX_VISITS = 100_000


class RandomSearch:
    """Visit the valid configurations in random order, each once."""

    def __call__(self, evaluate, space, rng):  # noqa: ARG002 - the contract
        """Run until the budget ends or everything has been measured."""
        order = space.sample(MAX_VISITS)
        for start in range(0, len(order), evaluate.parallel):
            evaluate(order[start : start + evaluate.parallel])
