"""A client for the running shop's control room."""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from chassis.errors import DomainError, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from shop_cli.local.run_file import Run, find_run

_TIMEOUT_SECONDS = 15.0
_KINDS: dict[int, type[DomainError]] = {http.client.BAD_REQUEST: InvalidArgument, http.client.NOT_FOUND: NotFound}


def require_run() -> Run:
    """Return the running shop. Raise FailedPrecondition if `find_run` finds none."""
    run = find_run()
    if run is None:
        message = "no shop runs here: start it with `shop up`, or change to the folder that it was started with"
        raise FailedPrecondition(message, reason="NO_SHOP")
    return run


def call(method: str, *path: str, **query: str) -> Any:
    """Call the control room's API and return the decoded response. Raise its error, or Unavailable without a response.

    `path` is the path's segments. `control_room.api.trace_query` defines the parameters of a trace search.
    """
    if not all(path):
        raise InvalidArgument(message="a service's name and a trace's id must not be empty")
    run = require_run()
    host = urlsplit(run.control_room).netloc
    url = f"/{'/'.join(quote(segment, safe='') for segment in path)}?{urlencode(query)}"
    connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, url, headers={"Authorization": f"Bearer {run.token}"})
        response = connection.getresponse()
        body = response.read()
    except OSError as error:
        message = f"the control room does not answer at {host}: is `shop up` frozen?"
        raise Unavailable(message, reason="NOTHING_LISTENS") from error
    finally:
        connection.close()
    if response.status < http.client.BAD_REQUEST:
        return json.loads(body or "null")
    try:
        described = json.loads(body)
    except ValueError:  # errors that the server itself has found are plain text
        described = {"reason": "CONTROL_ROOM_REFUSED", "message": f"the control room responded {response.status}"}
    raise _KINDS.get(response.status, FailedPrecondition)(**described)
