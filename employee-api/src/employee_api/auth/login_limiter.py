"""Slows down password guessing: by e-mail and network, or by device from a known device."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from chassis.values.backoff import backoff_seconds
from chassis.values.networks import network
from employee_api.errors import ApiError, TooManyFailedLogins
from employee_api.failure_counts import FailureCounts, count_key
from employee_api.models import FailureCount
from employee_api.users.passwords import BoundedSemaphore, HashingQueue

# The wait after a failure beyond the limit doubles with every further one, up to the maximum.
_FIRST_WAIT_SECONDS = 5
_MAX_WAIT_SECONDS = 60
# An account attacked from this many networks has to wait everywhere, except on its known devices.
_NETWORKS_PER_EMAIL = 10

# One at a time for an account from a network, so that concurrent guesses are refused like successive ones.
_MAX_ATTEMPTS = 1
_MAX_SHARED_ATTEMPTS = 8
_MAX_WAITING = 100


@dataclass(frozen=True)
class Attempt:
    """An attempt to use a password, perhaps on a known device of the user with this e-mail.

    Attributes:
        own: the key of the device, or of this e-mail from this network.
        address: the key of the network, which may be a proxy's: its failures alone make no one wait.
        limits: the numbers of failures, by key, from which the client has to wait.
        slots: the numbers of concurrent attempts by key, in the order in which to wait for them.
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
    """Counts failed logins, and makes clients wait after too many; it never locks an account.

    An attempt from a known device counts for that device only, so no one else can make its user wait. Beyond the limit
    of an address, each account is allowed one failure from there, because others may share the address with an
    attacker. All replicas share the counts; attempts in flight are limited by each process.
    """

    counts: FailureCounts
    per_email: int
    per_address: int
    _in_flight: dict[bytes, BoundedSemaphore] = field(default_factory=dict)

    def attempt(self, email: str, address: str, device: bytes | None = None) -> Attempt:
        """Describe an attempt, from a known device of this user if `device` is given."""
        if device is not None:
            key = count_key("device", device.hex())
            return Attempt(email, device, key, b"", {key: self.per_email}, {key: _MAX_ATTEMPTS})
        by_address, by_email = count_key("address", network(address)), count_key("email", email)
        own = count_key("email at address", f"{network(address)} {email}")
        # The account's own slots come first: guesses at one account must not occupy the slots of a shared address.
        slots = {own: _MAX_ATTEMPTS, by_email: _MAX_SHARED_ATTEMPTS, by_address: _MAX_SHARED_ATTEMPTS}
        limits = {own: self.per_email, by_email: self.per_email * _NETWORKS_PER_EMAIL}
        return Attempt(email, device, own, by_address, limits, slots)

    @asynccontextmanager
    async def in_flight(self, attempt: Attempt) -> AsyncIterator[None]:
        """Wait for earlier attempts. Raises TooManyPasswords if too many wait."""
        async with AsyncExitStack() as stack:
            for key, number in attempt.slots.items():
                await stack.enter_async_context(self._slot(key, number))
            yield

    async def exceeded(self, attempt: Attempt) -> ApiError | None:
        """Return the error to raise if the client has to wait."""
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

    @asynccontextmanager
    async def _slot(self, key: bytes, number: int) -> AsyncIterator[None]:
        attempts = self._in_flight.setdefault(key, BoundedSemaphore(number, _MAX_WAITING))
        try:
            async with attempts.slot():
                yield
        finally:
            if attempts.users == 0:
                self._in_flight.pop(key, None)
