"""Opens each request's session, and rejects forms from other sites."""

from typing import cast

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from chassis.values.hosts import is_foreign
from chassis.values.keys import HmacKeys
from storefront_service.domain import session_label
from storefront_service.sessions import LIFETIME_SECONDS, Session, open_session

CURRENCY_COOKIE, DELIVERY_COOKIE, _SESSION_COOKIE = "currency", "delivery", "session"
_PATHS = {DELIVERY_COOKIE: "/checkout"}  # all other cookies have the path /
_STATIC = "/static/"  # shared caches store responses under this path, so these must not set cookies


def session_of(request: Request) -> Session:
    return cast("Session", request.scope["session"])


def read_cookie(request: Request, name: str) -> str:
    return request.cookies.get(_full_name(request, name), "")


def set_cookie(request: Request, response: Response, name: str, value: str, *, max_age: int | None = None) -> None:
    """Set a cookie that scripts can't read. An empty value deletes the cookie."""
    full_name, path, secure = _full_name(request, name), _PATHS.get(name, "/"), request.url.scheme == "https"
    age = max_age if value else 0
    response.set_cookie(full_name, value, age, path=path, secure=secure, httponly=True, samesite="lax")


def _full_name(request: Request, name: str) -> str:
    """Return the cookie's full name. Over HTTPS, its prefix makes browsers reject the cookie if it is set over HTTP."""
    if request.url.scheme != "https":
        return name
    return f"__Secure-{name}" if name in _PATHS else f"__Host-{name}"


def with_session(app: ASGIApp, keys: HmacKeys, forbidden: ASGIApp) -> ASGIApp:
    """Open each request's session, and let `forbidden` respond to forms from other sites."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = scope["session"] = open_session(keys, read_cookie(request, _SESSION_COOKIE))

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and session.cookie is not None:
                response = Response()
                set_cookie(request, response, _SESSION_COOKIE, session.cookie, max_age=LIFETIME_SECONDS)
                MutableHeaders(scope=message).append("set-cookie", response.headers["set-cookie"])
            await send(message)

        origin, site, host = (request.headers.get(name) for name in ("origin", "sec-fetch-site", "host"))
        is_form = scope["method"] not in {"GET", "HEAD"}
        handle = forbidden if is_form and is_foreign(origin, site, host or "") else app
        # Record the session in this request's spans, and in the spans of all the calls that it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.first_id))
        await handle(scope, receive, send if scope["path"].startswith(_STATIC) else send_with_cookie)

    return serve
