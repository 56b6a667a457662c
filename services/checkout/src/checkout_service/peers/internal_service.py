"""Calls internal services (package shop.internal), which other implementations of the contract do not have."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from chassis.errors import REFUSALS, DomainError, Unavailable, Unimplemented
from chassis.values.backoff import backoff_seconds

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

log = structlog.get_logger()

# If a peer has returned nothing but UNIMPLEMENTED for this long, assume that it doesn't offer the internal service.
ABSENT_AFTER_SECONDS = 60.0

# The error reason if no internal address is set for a peer. Its internal services then count as absent at once.
NO_ADDRESS = "NO_INTERNAL_ADDRESS"

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


class InternalService:
    """An internal service that a peer may not offer.

    UNIMPLEMENTED alone does not prove that the service is absent: a proxy without a route or an older replica also
    returns it. So calls are retried at growing intervals, and only a service that has never answered counts as absent.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._missing_since: float | None = None
        self._retry_at = 0.0
        self._failures = 0
        self.found = False

    async def call(self, method: Callable[[RequestT], Awaitable[ReplyT]], request: RequestT) -> ReplyT:
        """Call a method. Raise Unimplemented if the peer doesn't offer the service, Unavailable if this is unclear."""
        if self._now() < self._retry_at:
            raise self._error()
        try:
            reply = await method(request)
        except Unimplemented as error:
            if error.reason == NO_ADDRESS:
                raise
            self._record_missing()
            raise self._error() from error
        except DomainError as error:
            if isinstance(error, REFUSALS):  # the service itself refused the call, so it exists
                self._record_found()
            raise
        self._record_found()
        return reply

    async def exists(self, method: Callable[[RequestT], Awaitable[object]], probe: RequestT) -> bool:
        """Return whether the peer offers the service. Raise DomainError if this is unclear.

        `probe`: a request that the service refuses.
        """
        if not self.found:
            with suppress(*REFUSALS):
                await self.call(method, probe)
        return self.found

    def _record_found(self) -> None:
        self.found, self._missing_since, self._retry_at, self._failures = True, None, 0.0, 0

    def _record_missing(self) -> None:
        if self._missing_since is None:
            self._missing_since = self._now()
            log.warning("internal service not implemented", service=self._name)
        self._failures += 1
        self._retry_at = self._now() + backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def _error(self) -> DomainError:
        message = f"{self._name} is not implemented"
        since = self._missing_since
        if self.found or since is None or self._now() - since < ABSENT_AFTER_SECONDS:
            return Unavailable(message, reason=Unimplemented.default_reason)
        return Unimplemented(message)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
