"""Random search without replacement: what the score calls 0."""

MAX_VISITS = 100_000


class RandomSearch:
    """Visit the valid configurations in random order, each once."""

    def __init__(self, serial_batch=64):
        self.serial_batch = serial_batch

    def __call__(self, evaluate, space, rng):  # noqa: ARG002 - the contract
        """Run until the budget ends or everything has been measured."""
        # One at a time, a batch takes as long as its members: it only saves messages.
        width = evaluate.parallel if evaluate.parallel > 1 else self.serial_batch
        order = space.sample(MAX_VISITS)
        for start in range(0, len(order), width):
            evaluate(order[start : start + width])
