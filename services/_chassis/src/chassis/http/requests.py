"""What identifies an HTTP request in its log lines, its span and its response."""

import re
import uuid

from starlette.datastructures import Headers
from starlette.types import Scope

from chassis.telemetry import semconv

REQUEST_ID_HEADER = "x-request-id"
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")


def identify(scope: Scope) -> dict[str, str]:
    """Return the request's id and its client's address, by the names of their attributes.

    The id is that of X-Request-ID if this has at most 64 letters, digits, dots, hyphens and underscores; otherwise it
    is a new one. The address is the connection's, or that which a trusted proxy reports.
    """
    received = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    identity = {semconv.REQUEST_ID: received if _WELL_FORMED.fullmatch(received) else uuid.uuid4().hex}
    if scope.get("client"):
        identity[semconv.CLIENT_ADDRESS] = scope["client"][0]
    return identity
