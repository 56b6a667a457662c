"""Exponential backoff."""


def backoff_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """Return the delay after `failures` consecutive failures: it doubles with each failure, up to `longest_seconds`."""
    return min(first_seconds * 2.0 ** min(failures - 1, 100), longest_seconds) if failures else 0.0
