"""Slows down the guessing of passwords: by e-mail and network, or from a known device by device."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from chassis.values.backoff import backoff_seconds
from chassis.values.networks import network
from employee_api.errors import TooManyFailedLogins
from employee_api.failure_counts import FailureCounts, count_key
from employee_api.models import FailureCount
from employee_api.users.passwords import BoundedSemaphore, HashingQueue

# Beyond the limit, the wait after a failure: it doubles with every further one, up to the maximum.
_FIRST_WAIT_SECONDS = 5
_MAX_WAIT_SECONDS = 60
# An attack on an account from so many networks makes it wait everywhere, but for its known devices.
_NETWORKS_PER_EMAIL = 10

# One by one for an account from a network, so that concurrent guesses are refused like successive ones.
_MAX_ATTEMPTS = 1
_MAX_SHARED_ATTEMPTS = 8
_MAX_WAITING = 100


@dataclass(frozen=True)
class Attempt:
    """A password that a client has entered, perhaps on a known device of the user with this e-mail.

    It is counted by keys, each with its slots, in the order in which it waits for them; most have a limit.

    Attributes:
        own: the key of this device, or of this e-mail from this network.
        address: the key of the network, which may be that of a proxy: its failures alone make no one wait.
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
    """Counts failed logins, and makes further attempts wait when there were too many; it never locks an account.

    An attempt from a known device is counted only for this device: no one else can make its user wait. Beyond the limit
    of an address, each account has one failure from there: an attacker and others behind a proxy may share it.
    The database has the counts, for all replicas; each process has the attempts in flight.
    """

    counts: FailureCounts
    per_email: int
    per_address: int
    _in_flight: dict[bytes, BoundedSemaphore] = field(default_factory=dict)

    def attempt(self, email: str, address: str, device: bytes | None = None) -> Attempt:
        """Describe an attempt; `device` identifies the known device of this user from which it comes, if it does."""
        if device is not None:
            key = count_key("device", device.hex())
            return Attempt(email, device, key, b"", {key: self.per_email}, {key: _MAX_ATTEMPTS})
        by_address, by_email = count_key("address", network(address)), count_key("email", email)
        own = count_key("email at address", f"{network(address)} {email}")
        # Those who guess one account's password from a shared address wait before they occupy its slots.
        slots = {own: _MAX_ATTEMPTS, by_email: _MAX_SHARED_ATTEMPTS, by_address: _MAX_SHARED_ATTEMPTS}
        limits = {own: self.per_email, by_email: self.per_email * _NETWORKS_PER_EMAIL}
        return Attempt(email, device, own, by_address, limits, slots)

    @asynccontextmanager
    async def in_flight(self, attempt: Attempt) -> AsyncIterator[None]:
        """Wait for the attempts before this one. Raises TooManyPasswords if too many wait."""
        async with AsyncExitStack() as stack:
            for key, number in attempt.slots.items():
                await stack.enter_async_context(self._slot(key, number))
            yield

    async def exceeded(self, attempt: Attempt) -> TooManyFailedLogins | None:
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
