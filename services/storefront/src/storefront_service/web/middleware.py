"""Wraps every request: opens its session, and rejects forms of other sites."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from storefront_service.domain import session_label
from storefront_service.sessions import LIFETIME_SECONDS, Session, SessionSigner

_STATIC = "/static/"  # caches store what is below it

Handle = Callable[[Scope, Receive, Send], Awaitable[None]]


def session_of(request: Request) -> Session:
    session: Session = request.scope["session"]
    return session


class ShopMiddleware:
    """Opens the visitor's session, and lets `forbidden` respond to forms of other sites."""

    def __init__(self, app: ASGIApp, signer: SessionSigner, forbidden: Handle, *, secure_cookie: bool) -> None:
        self._app = app
        self._signer = signer
        self._forbidden = forbidden
        # Browsers take a cookie of this name from this host alone, over https.
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

        handle = self._forbidden if _is_foreign_form(scope) else self._app
        # Baggage reaches the spans of this page and of every call that it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.user_id))
        await handle(scope, receive, send if scope["path"].startswith(_STATIC) else send_with_cookie)


def _is_foreign_form(scope: Scope) -> bool:
    """Return whether a browser sent a form from a page of another origin, in the visitor's name.

    Browsers send at least one of the headers with every form, and pages cannot change them. A request with neither
    is from a program, which has no visitor's cookies.
    """
    headers = Headers(scope=scope)
    if scope["method"] in {"GET", "HEAD"}:
        return False
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return True
    origin = headers.get("origin")
    return origin is not None and _host_of(origin) != headers.get("host", "").lower()


def _host_of(origin: str) -> str | None:
    # The scheme is left out: behind a proxy that ends TLS the request arrives without it.
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
