"""Slows down the guessing of passwords: by e-mail and by address, or from a known device by device."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from chassis.values.networks import network
from employee_api.errors import TooManyFailedLogins
from employee_api.failure_counts import FailureCounts, count_key
from employee_api.models import FailureCount
from employee_api.users.passwords import BoundedSemaphore, HashingQueue

# Beyond the limit, the wait after a failure: it doubles with every further one, up to the maximum.
_FIRST_WAIT = timedelta(seconds=5)
_MAX_WAIT = timedelta(minutes=1)
_MAX_DOUBLINGS = 10

# One by one for an account, so that concurrent guesses are refused like successive ones.
_MAX_ATTEMPTS_PER_ACCOUNT = 1
_MAX_ATTEMPTS_PER_ADDRESS = 8
_MAX_WAITING = 100


@dataclass(frozen=True)
class Attempt:
    """A password that a client has entered, perhaps on a known device of the user with this e-mail.

    It is counted by keys, each with its limit and its slots, in the order in which it waits for them.
    """

    email: str
    device: bytes | None
    limits: Mapping[bytes, int]
    slots: Mapping[bytes, int]

    @property
    def queue(self) -> HashingQueue:
        return HashingQueue.LOGIN if self.device is None else HashingQueue.KNOWN_DEVICE


@dataclass
class LoginLimiter:
    """Counts failed logins, and makes further attempts wait when there were too many; it never locks an account.

    An attempt from a known device is counted only for this device: no one else can make its user wait. The database has
    the counts, for all replicas; each process has the attempts in flight.
    """

    counts: FailureCounts
    per_email: int
    per_address: int
    _in_flight: dict[bytes, BoundedSemaphore] = field(default_factory=dict)

    def attempt(self, email: str, address: str, device: bytes | None = None) -> Attempt:
        """Describe an attempt; `device` identifies the known device of this user from which it comes, if it does."""
        if device is not None:
            key = count_key("device", device.hex())
            return Attempt(email, device, {key: self.per_email}, {key: _MAX_ATTEMPTS_PER_ACCOUNT})
        by_address, by_email = count_key("address", network(address)), count_key("email", email)
        return Attempt(
            email,
            device,
            {by_address: self.per_address, by_email: self.per_email},
            {by_address: _MAX_ATTEMPTS_PER_ADDRESS, by_email: _MAX_ATTEMPTS_PER_ACCOUNT},
        )

    @asynccontextmanager
    async def in_flight(self, attempt: Attempt) -> AsyncIterator[None]:
        """Wait for the attempts before this one. Raises TooManyPasswords if too many wait."""
        async with AsyncExitStack() as stack:
            for key, number in attempt.slots.items():
                await stack.enter_async_context(self._slot(key, number))
            yield

    async def exceeded(self, attempt: Attempt) -> TooManyFailedLogins | None:
        """Return the error to raise if the client has to wait."""
        counts = await self.counts.read(attempt.limits)
        waits = [self._wait(count, attempt.limits[key]) for key, count in counts.items()]
        longest = max(waits, default=timedelta(0))
        return TooManyFailedLogins(retry_after_seconds=longest.total_seconds()) if longest > timedelta(0) else None

    async def record_success(self, attempt: Attempt) -> None:
        """Reset the count of the e-mail or device; an address may have guessed the passwords of others."""
        await self.counts.reset(list(attempt.limits)[-1:])

    async def is_first_refusal(self, email: str) -> bool:
        """Return whether no attempt with this e-mail has been refused in the window, and count a refusal if so."""
        key = count_key("refusal", email)
        if await self.counts.read([key]):
            return False
        return (await self.counts.add([key]))[key].failures == 1

    def _wait(self, count: FailureCount, limit: int) -> timedelta:
        if count.failures < limit:
            return timedelta(0)
        wait = _FIRST_WAIT * int(2 ** min(count.failures - limit, _MAX_DOUBLINGS))
        ends = min(count.last_at + min(wait, _MAX_WAIT), count.begun_at + self.counts.window)
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
