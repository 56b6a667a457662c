"""Limits registrations by address: each costs a password hash, and leaves a user behind."""

from employee_api.clock import Clock
from employee_api.failure_counts import FailureCounts, count_key, network
from employee_api.http.operations import Authorizer
from employee_api.users.errors import TooManyRegistrations


class RegistrationLimiter:
    """Counts attempts to register, successful or not, in windows that begin with the first."""

    def __init__(self, counts: FailureCounts, clock: Clock, authorizer: Authorizer, *, per_address: int) -> None:
        self._counts = counts
        self._clock = clock
        self._authorizer = authorizer
        self._per_address = per_address

    async def count(self, address: str) -> None:
        """Count an attempt. Raises TooManyRegistrations if authorization is enforced."""
        key = count_key("registration", network(address))
        count = (await self._counts.read([key])).get(key)
        if count is None or count.failures < self._per_address:
            # Concurrent attempts get distinct counts.
            count = await self._counts.add_apart(key)
            if count.failures <= self._per_address:
                return
        wait = count.begun_at + self._counts.window - self._clock()
        self._authorizer.refuse(TooManyRegistrations(wait.total_seconds()), "register")
