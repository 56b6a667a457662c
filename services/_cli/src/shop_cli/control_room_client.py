"""A client for the running shop's control room."""

import http.client
import json
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from chassis.errors import DomainError, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from shop_cli.local.run_file import Run, find_run

_TIMEOUT_SECONDS = 15.0


def require_run() -> Run:
    """Return the running shop. Raise FailedPrecondition if `find_run` finds none."""
    run = find_run()
    if run is None:
        message = "no shop runs here: start it with `shop up`, or change to the folder that it was started with"
        raise FailedPrecondition(message, reason="NO_SHOP")
    return run


def status() -> dict[str, Any]:
    return cast("dict[str, Any]", _call("GET", "/api/status"))


def find_traces(**query: str) -> list[dict[str, Any]]:
    """Return trace summaries, latest first. `control_room.api.trace_query` defines the parameters."""
    given = urlencode({name: value for name, value in query.items() if value})
    return cast("list[dict[str, Any]]", _call("GET", f"/api/traces?{given}"))


def get_trace(trace_id: str) -> list[dict[str, Any]]:
    """Return a trace's spans. Raise NotFound if none are stored."""
    return cast("list[dict[str, Any]]", _call("GET", f"/api/traces/{_segment('trace', trace_id)}"))


def act(action: str, service: str) -> None:
    """Kill, freeze, resume or restart a service. Raise NotFound if the service or action is unknown."""
    _call("POST", f"/services/{_segment('service', service)}/{action}")


def _segment(field: str, value: str) -> str:
    """Percent-encode a value as a URL path segment. Raise InvalidArgument if the value is empty."""
    if not value:
        raise InvalidArgument.field(field, "must not be empty")
    return quote(value, safe="")


def _call(method: str, path: str) -> Any:
    run = require_run()
    host = urlsplit(run.control_room).netloc
    connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {run.token}"})
        response = connection.getresponse()
        body = response.read()
    except OSError as error:
        message = f"the control room does not answer at {host}: is `shop up` frozen?"
        raise Unavailable(message, reason="NOTHING_LISTENS") from error
    finally:
        connection.close()
    if response.status >= http.client.BAD_REQUEST:
        raise _error(response.status, body)
    return json.loads(body) if body else None


def _error(status: int, body: bytes) -> DomainError:
    try:
        described = json.loads(body)
        reason, message = described["reason"], described["message"]
    except (ValueError, KeyError, TypeError):
        return FailedPrecondition(f"the control room responded {status}", reason="CONTROL_ROOM_REFUSED")
    kinds: dict[int, type[DomainError]] = {http.client.BAD_REQUEST: InvalidArgument, http.client.NOT_FOUND: NotFound}
    return kinds.get(status, FailedPrecondition)(message=message, reason=reason)
