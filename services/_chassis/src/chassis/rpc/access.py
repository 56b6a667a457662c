"""Limits each method to the callers that ALLOWED_CALLS lists for it, identified by the names in their certificates."""

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

Serve = Callable[[Any, Any], Awaitable[bytes]]

# gRPC's keys for the names in a verified certificate. gRPC sets the SPIFFE ID only if the certificate has no other URI.
_SPIFFE_ID, _URI, _DNS_NAME = "peer_spiffe_id", "peer_uri", "peer_dns"


class CallerNotAllowed(PermissionDenied):
    """None of the names in the caller's certificate may call this method."""


def for_callers(method: str, callers: Callers, serve_allowed: Serve, telemetry: Telemetry) -> Serve:
    """Return a function that passes allowed callers' calls to `serve_allowed` and aborts all other calls."""
    allowed = {caller.encode() for caller, methods in callers.items() if method in methods}
    denied, attributes = telemetry.counter(semconv.DENIED_REQUESTS), ((semconv.RPC_METHOD, method),)
    denied.add(0, attributes)  # export 0 from the start, or alerts would miss the first increase
    logged: set[bytes] = set()

    async def serve(requests: object, context: ServicerContext) -> bytes:
        """Serve a call, or abort it before reading its request, so that a denied caller can't use up memory."""
        # Don't cache a caller's names by peer address, because another caller may reuse the address.
        certificate = context.auth_context()
        names = tuple(certificate.get(_SPIFFE_ID if _URI in certificate else _DNS_NAME, ()))
        if not allowed.isdisjoint(names):
            return await serve_allowed(requests, context)
        denied.add(1, attributes)
        caller = b", ".join(names)
        if caller not in logged:  # log each caller only once, however often it retries
            logged.add(caller)
            log.warning("caller not allowed", caller=caller.decode() or "unknown", method=method)
        error = CallerNotAllowed(f"this caller may not call {method}: ALLOWED_CALLS does not list it")
        await context.abort_with_status(to_status(error))
        raise error  # never reached, because abort_with_status raises

    return serve
