"""Live frameworks: tuning in them, recording from them, exporting to them."""
