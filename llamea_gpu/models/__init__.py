"""Models of spaces too large to measure whole: fitted to clouds, judged by a gate."""
