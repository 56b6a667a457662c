"""Protects Locust's web UI, which has no login and would otherwise accept requests from any origin."""

from collections.abc import Callable, Iterable
from typing import Any

from chassis.values.hosts import host_problem, is_foreign

WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


def guarded(app: WsgiApp, allowed_hosts: frozenset[str]) -> WsgiApp:
    """Wrap the application. Requests for unknown hosts get status 421, and requests from other origins get 403.

    Check GET requests too, because a GET request to `/stop` ends the run. But let pages from other origins link to `/`.
    """

    def respond(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        host, origin, site = (environ.get(f"HTTP_{name}") for name in ("HOST", "ORIGIN", "SEC_FETCH_SITE"))
        if environ["PATH_INFO"] == "/" and environ.get("HTTP_SEC_FETCH_MODE") == "navigate":
            site = None
        problem = host_problem(host, allowed_hosts)
        if problem is None and is_foreign(origin, site, host or ""):
            problem = 403, "Foreign origin"
        if problem is None:
            return app(environ, start_response)
        start_response(f"{problem[0]} {problem[1]}", [("Content-Type", "text/plain")])
        return [problem[1].encode()]

    return respond
