"""Places orders."""
