"""Admits the callers that ALLOWED_CALLS names for a method, by the SPIFFE ID of their certificate."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from chassis.errors import PermissionDenied
from chassis.rpc.calls import ServicerContext
from chassis.rpc.status import to_status
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.tls.callers import Callers

log = structlog.get_logger()

# gRPC's name of the URI in a verified certificate, if that has exactly one with the scheme spiffe.
_SPIFFE_ID = "peer_spiffe_id"


class CallerNotAllowed(PermissionDenied):
    """The caller's certificate does not name a caller that may call this method."""


class Access:
    """Serves the calls of one method whose callers are allowed, by `serve_allowed`."""

    def __init__(
        self, method: str, serve_allowed: Callable[[Any, Any], Awaitable[bytes]], callers: Callers, telemetry: Telemetry
    ) -> None:
        self._method = method
        self._serve_allowed = serve_allowed
        self._allowed = {caller.encode() for caller, methods in callers.items() if method in methods}
        self._denied = telemetry.counter(semconv.DENIED_REQUESTS)
        self._attributes = ((semconv.RPC_METHOD, method),)
        self._denied.add(0, self._attributes)  # exported from the start: an alert sees only increases of a series
        self._logged: set[bytes] = set()

    async def serve(self, requests: object, context: ServicerContext) -> bytes:
        """Serve a call, or abort it before its request is read: what callers that are not allowed send takes memory."""
        # For each call: an address may be another caller's by now, and connections have no other name.
        caller, *others = context.auth_context().get(_SPIFFE_ID, ()) or (b"",)
        if caller in self._allowed and not others:
            return await self._serve_allowed(requests, context)
        self._denied.add(1, self._attributes)
        if caller not in self._logged:  # one line for each: a caller that tries again and again does not fill the log
            self._logged.add(caller)
            log.warning("caller not allowed", caller=caller.decode() or "unknown", method=self._method)
        error = CallerNotAllowed(f"this caller may not call {self._method}: ALLOWED_CALLS does not list it")
        await context.abort_with_status(to_status(error))
        raise error  # not reached: abort raises
