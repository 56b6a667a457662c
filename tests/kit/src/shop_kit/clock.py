"""A clock that a test sets."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Returns `seconds` when it is called, as `time.monotonic` does."""

    seconds: float = 1_000.0

    def __call__(self) -> float:
        return self.seconds
