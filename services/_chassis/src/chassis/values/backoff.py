def backoff_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """Return how long to wait after `failures` consecutive failures. The wait doubles with each failure."""
    return min(first_seconds * 2.0 ** min(failures - 1, 100), longest_seconds) if failures else 0.0
