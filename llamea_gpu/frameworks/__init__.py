"""What recording, live tuning and export know of a framework in common."""
