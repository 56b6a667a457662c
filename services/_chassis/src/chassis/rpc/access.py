"""Admits the callers that ALLOWED_CALLS lists for a method, by the names in their certificates."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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

# gRPC's keys of names in a verified certificate: the SPIFFE ID, if that is its only URI; all URIs; DNS names.
_SPIFFE_ID, _URI, _DNS_NAME = "peer_spiffe_id", "peer_uri", "peer_dns"


class CallerNotAllowed(PermissionDenied):
    """The caller's certificate does not name a caller that may call this method."""


def for_callers(method: str, callers: Callers, serve_allowed: Serve, telemetry: Telemetry) -> Serve:
    """Return what serves the calls of one method by the callers that are allowed, by `serve_allowed`."""
    allowed = {caller.encode() for caller, methods in callers.items() if method in methods}
    denied, attributes = telemetry.counter(semconv.DENIED_REQUESTS), ((semconv.RPC_METHOD, method),)
    denied.add(0, attributes)  # exported from the start: an alert sees only increases of a series
    logged: set[bytes] = set()

    async def serve(requests: object, context: ServicerContext) -> bytes:
        """Serve a call, or abort it before its request is read: what callers that are not allowed send takes memory."""
        # For each call: an address may be another caller's by now, and connections have no other name.
        names = _names(context.auth_context())
        if not allowed.isdisjoint(names):
            return await serve_allowed(requests, context)
        denied.add(1, attributes)
        caller = b", ".join(names)
        if caller not in logged:  # one line for each: a caller that tries again and again does not fill the log
            logged.add(caller)
            log.warning("caller not allowed", caller=caller.decode() or "unknown", method=method)
        error = CallerNotAllowed(f"this caller may not call {method}: ALLOWED_CALLS does not list it")
        await context.abort_with_status(to_status(error))
        raise error  # not reached: abort raises

    return serve


def _names(certificate: Mapping[str, Iterable[bytes]]) -> Sequence[bytes]:
    """Return the SPIFFE ID of a verified certificate or, if it has no URI, its DNS names."""
    return tuple(certificate.get(_SPIFFE_ID if _URI in certificate else _DNS_NAME, ()))
