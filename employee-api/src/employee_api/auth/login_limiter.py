"""Limits failed logins by e-mail and by address."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from employee_api.errors import TooManyFailedLogins

_MAX_COUNTERS = 10_000

_Key = tuple[str, bytes]


class LoginLimiter:
    """Counts failed logins by e-mail and by address, in windows that begin with the first failure.

    Each replica has its own counters in memory, and discards the oldest when it has too many: it slows down guessing
    but is no account lock.
    """

    def __init__(self, *, per_email: int, per_address: int, window_seconds: float, time: Callable[[], float]) -> None:
        self._limits = {"email": per_email, "address": per_address}
        self._window_seconds = window_seconds
        self._time = time
        self._failures: OrderedDict[_Key, tuple[float, int]] = OrderedDict()

    def exceeded(self, email: str, address: str) -> TooManyFailedLogins | None:
        """Return the error to raise if either has reached its limit."""
        waits = [
            begun + self._window_seconds - self._time()
            for key in _keys(email, address)
            for begun, count in [self._failures.get(key, (0.0, 0))]
            if count >= self._limits[key[0]]
        ]
        longest = max(waits, default=0.0)
        return TooManyFailedLogins(longest) if longest > 0 else None

    def record_attempt(self, email: str, address: str) -> None:
        """Count an attempt as a failure until it succeeds, so that concurrent attempts can't exceed the limit."""
        now = self._time()
        for key in _keys(email, address):
            begun, count = self._failures.pop(key, (now, 0))
            self._failures[key] = (begun, count + 1) if begun + self._window_seconds > now else (now, 1)
        while len(self._failures) > _MAX_COUNTERS:
            self._failures.popitem(last=False)

    def record_success(self, email: str, address: str) -> None:
        """Reset the e-mail's counter, and uncount this attempt for the address."""
        email_key, address_key = _keys(email, address)
        self._failures.pop(email_key, None)
        begun, count = self._failures.get(address_key, (0.0, 0))
        if count > 0:
            self._failures[address_key] = (begun, count - 1)


def _keys(email: str, address: str) -> tuple[_Key, _Key]:
    # The e-mail in a login may be as long as a request body; its hash bounds the memory of a counter.
    return ("email", hashlib.sha256(email.encode()).digest()), ("address", address.encode())
