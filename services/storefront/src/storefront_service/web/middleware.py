"""Opens each request's session, and rejects forms from other sites."""

from typing import cast

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from chassis.values.hosts import is_foreign
from storefront_service.domain import session_label
from storefront_service.sessions import LIFETIME_SECONDS, Session, SessionSigner

_STATIC = "/static/"  # shared caches store responses below this path, so these responses must not set cookies


def session_of(request: Request) -> Session:
    return cast("Session", request.scope["session"])


class ShopMiddleware:
    def __init__(self, app: ASGIApp, signer: SessionSigner, forbidden: ASGIApp, *, secure_cookie: bool) -> None:
        self._app = app
        self._signer = signer
        self._forbidden = forbidden
        # With this prefix, browsers accept the cookie only from this host and over https.
        self._name = "__Host-session" if secure_cookie else "session"
        self._attributes = "Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure_cookie else "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = self._signer.open(request.cookies.get(self._name))
        scope["session"] = session

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and session.cookie is not None:
                cookie = f"{self._name}={session.cookie}; Max-Age={LIFETIME_SECONDS if session.cookie else 0}"
                MutableHeaders(scope=message).append("set-cookie", f"{cookie}; {self._attributes}")
            await send(message)

        origin, site, host = (request.headers.get(name) for name in ("origin", "sec-fetch-site", "host"))
        is_form = scope["method"] not in {"GET", "HEAD"}
        handle = self._forbidden if is_form and is_foreign(origin, site, host or "") else self._app
        # Record the session in the spans of this request and of all the calls it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.first_id))
        await handle(scope, receive, send if scope["path"].startswith(_STATIC) else send_with_cookie)
