"""Access to Locust's page, which has no login and allows every origin: from its own hosts and its own origin only."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from chassis.values.hosts import host_problem, parse_authority

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Any], Iterable[bytes]]


def guarded(app: WsgiApp, allowed_hosts: frozenset[str]) -> WsgiApp:
    """Return the application without requests for other hosts (421), and from pages of other origins (403).

    Browsers name a page's origin in every change, and to this machine its relation in every request: also in those that
    Locust takes for reads, such as `/stop`. Programs send neither. A link to the page itself may be anywhere.
    """

    def respond(environ: Environ, start_response: Any) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        problem = host_problem([host], allowed_hosts) or (_is_foreign(environ, host) and (403, "Foreign origin"))
        if not problem:
            return app(environ, start_response)
        start_response(f"{problem[0]} {problem[1]}", [("Content-Type", "text/plain")])
        return [problem[1].encode()]

    return respond


def _is_foreign(environ: Environ, host: str) -> bool:
    origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE", "none")
    is_link = environ["PATH_INFO"] == "/" and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    try:
        is_other = origin is not None and parse_authority(urlsplit(origin).netloc) != parse_authority(host)
    except ValueError:
        is_other = True
    return is_other or not (site in {"same-origin", "none"} or is_link)
