"""Human-designed searchers: one file an algorithm, each standing alone with numpy only."""
