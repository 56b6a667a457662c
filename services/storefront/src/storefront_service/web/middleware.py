"""Wraps every request: opens its session, and rejects forms of other sites."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from storefront_service.domain import session_label
from storefront_service.sessions import Session, SessionSigner

COOKIE = "session"
_MAX_AGE_SECONDS = 30 * 24 * 3600
_STATIC = "/static/"

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
        self._attributes = f"Path=/; Max-Age={_MAX_AGE_SECONDS}; HttpOnly; SameSite=Lax" + (
            "; Secure" if secure_cookie else ""
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = self._signer.open(request.cookies.get(COOKIE))
        scope["session"] = session
        sets_cookie = session.cookie is not None and not scope["path"].startswith(_STATIC)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("set-cookie", f"{COOKIE}={session.cookie}; {self._attributes}")
            await send(message)

        handle = self._forbidden if _is_foreign_form(scope) else self._app
        # Baggage reaches the spans of this page and of every call that it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.user_id))
        await handle(scope, receive, send_with_cookie if sets_cookie else send)


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
