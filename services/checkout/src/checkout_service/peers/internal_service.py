"""Calls internal services (package shop.internal), which other implementations of the contract do not offer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from chassis.errors import REFUSALS, DomainError, Unavailable, Unimplemented

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

log = structlog.get_logger()

# If a peer has returned nothing but UNIMPLEMENTED for this long, assume that it doesn't offer the internal service.
ABSENT_AFTER_SECONDS = 60.0

# The error reason if a peer has no internal address configured. Its internal services then count as absent at once.
NO_ADDRESS = "NO_INTERNAL_ADDRESS"


class InternalService:
    """An internal service that a peer may not offer.

    UNIMPLEMENTED alone does not prove that the service is absent: a proxy without a route or an older replica also
    returns it. So a service that has never answered counts as absent only after ABSENT_AFTER_SECONDS.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._missing_since: float | None = None
        self.found = False

    async def call(self, method: Callable[[RequestT], Awaitable[ReplyT]], request: RequestT) -> ReplyT:
        """Call a method. Raise Unimplemented if the peer doesn't offer the service, Unavailable if this is unclear."""
        try:
            reply = await method(request)
        except Unimplemented as error:
            if error.reason == NO_ADDRESS:
                raise
            raise self._missing() from error
        except REFUSALS:  # the service itself refused the call, so it exists
            self._record_found()
            raise
        self._record_found()
        return reply

    async def exists(self, method: Callable[[RequestT], Awaitable[object]], probe: RequestT) -> bool:
        """Return whether the peer offers the service. Raise DomainError if this is unclear.

        `probe` is a request that the service refuses if it exists.
        """
        if not self.found:
            with suppress(*REFUSALS):
                await self.call(method, probe)
        return self.found

    def _record_found(self) -> None:
        self.found, self._missing_since = True, None

    def _missing(self) -> DomainError:
        now, message = asyncio.get_running_loop().time(), f"{self._name} is not implemented"
        if self._missing_since is None:
            self._missing_since = now
            log.warning("internal service not implemented", service=self._name)
        if self.found or now - self._missing_since < ABSENT_AFTER_SECONDS:
            return Unavailable(message, reason=Unimplemented.default_reason)
        return Unimplemented(message)
