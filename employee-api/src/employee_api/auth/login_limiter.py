"""Slows down password guessing by counting failed logins per e-mail and network, or per known device."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from weakref import WeakValueDictionary

from chassis.values.backoff import backoff_seconds
from chassis.values.networks import network
from employee_api.errors import ApiError, TooManyFailedLogins
from employee_api.failure_counts import FailureCounts, count_key
from employee_api.models import FailureCount
from employee_api.users.passwords import BoundedSemaphore, HashingQueue

# A client whose failures reach the limit must wait. Each further failure doubles the wait, up to the maximum.
_FIRST_WAIT_SECONDS = 5
_MAX_WAIT_SECONDS = 60
# Once failed logins to an account, across all networks, reach this multiple of the limit, unknown devices must wait.
_NETWORKS_PER_EMAIL = 10

# Allow one attempt at a time per account and network; otherwise concurrent guesses could exceed the limits.
_MAX_ATTEMPTS = 1
_MAX_SHARED_ATTEMPTS = 8
_MAX_WAITING = 100


@dataclass(frozen=True)
class Attempt:
    """An attempt to log in, or to confirm an operation with the password.

    Attributes:
        device: the device's token hash if the user has logged in from this device before, else None.
        own: the key for this client's failures, made from its device if known, else from its e-mail and network.
        address: the key for failures in the client's network, except on known devices. Alone, they delay no one.
        limits: for each key, the number of failures after which the client must wait.
        slots: for each key, how many attempts may run at once. Slots are acquired in the mapping's order.
    """

    email: str
    device: bytes | None
    own: bytes
    address: bytes
    limits: Mapping[bytes, int]
    slots: Mapping[bytes, int]

    @property
    def queue(self) -> HashingQueue:
        return HashingQueue.LOGIN if self.device is None else HashingQueue.KNOWN_DEVICE


@dataclass
class LoginLimiter:
    """Counts failed logins, and makes clients wait after too many failures. Accounts are never locked.

    Failures on a known device count only for that device, and failures elsewhere never delay that device. Honest users
    may share an attacker's network, so after too many failures from a network, users there must wait only if a login
    to their own account has also failed. Replicas share the counts, but each limits concurrent attempts on its own.
    """

    counts: FailureCounts
    per_email: int
    per_address: int
    _in_flight: WeakValueDictionary[bytes, BoundedSemaphore] = field(default_factory=WeakValueDictionary)

    def attempt(self, email: str, address: str, device: bytes | None = None) -> Attempt:
        if device is not None:
            key = count_key("device", device.hex())
            return Attempt(email, device, key, b"", {key: self.per_email}, {key: _MAX_ATTEMPTS})
        by_address, by_email = count_key("address", network(address)), count_key("email", email)
        own = count_key("email at address", f"{network(address)} {email}")
        # Acquire the client's own slot first, so that an attempt waiting for it holds no slots that others need.
        slots = {own: _MAX_ATTEMPTS, by_email: _MAX_SHARED_ATTEMPTS, by_address: _MAX_SHARED_ATTEMPTS}
        limits = {own: self.per_email, by_email: self.per_email * _NETWORKS_PER_EMAIL}
        return Attempt(email, device, own, by_address, limits, slots)

    @asynccontextmanager
    async def in_flight(self, attempt: Attempt) -> AsyncIterator[None]:
        """Acquire the attempt's slots, and hold them during the block. Raise TooManyPasswords if a queue is full."""
        async with AsyncExitStack() as stack:
            for key, number in attempt.slots.items():
                attempts = self._in_flight.setdefault(key, BoundedSemaphore(number, _MAX_WAITING))
                await stack.enter_async_context(attempts.slot())
            yield

    async def exceeded(self, attempt: Attempt) -> ApiError | None:
        """Return an error that says how long the client must wait, or None if there is no need to wait."""
        counts, limits = await self.counts.read(attempt.slots), dict(attempt.limits)
        if attempt.address in counts and counts[attempt.address].failures >= self.per_address:
            limits[attempt.own] = 1
        waits = [self._wait(count, limits[key]) for key, count in counts.items() if key in limits]
        longest = max(waits, default=timedelta(0))
        return TooManyFailedLogins(retry_after_seconds=longest.total_seconds()) if longest > timedelta(0) else None

    def _wait(self, count: FailureCount, limit: int) -> timedelta:
        if count.failures < limit:
            return timedelta(0)
        wait = timedelta(seconds=backoff_seconds(count.failures - limit + 1, _FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS))
        ends = min(count.last_at + wait, count.begun_at + self.counts.window)
        return ends - self.counts.clock()
