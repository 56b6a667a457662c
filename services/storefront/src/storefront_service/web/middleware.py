"""Wraps every request: opens its session, rejects forms of other sites, adds headers to the response."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from storefront_service.domain import session_label
from storefront_service.sessions import Session, SessionSigner
from storefront_service.web.headers import SECURITY_HEADERS

COOKIE = "session"
_MAX_AGE_SECONDS = 30 * 24 * 3600
_STATIC = "/static/"

Handle = Callable[[Scope, Receive, Send], Awaitable[None]]


def session_of(request: Request) -> Session:
    session: Session = request.scope["session"]
    return session


class ShopMiddleware:
    """Opens the visitor's session, rejects foreign forms, and sets the headers of every response.

    Args:
        app: the routes.
        signer: of session cookies.
        secure_cookie: whether the cookie is only sent over https.
        forbidden: responds to a form of another site.
    """

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
        is_static = scope["path"].startswith(_STATIC)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if session.cookie is not None and not is_static:
                    headers.append("set-cookie", f"{COOKIE}={session.cookie}; {self._attributes}")
            await send(message)

        handle = self._forbidden if _is_foreign_form(scope) else self._app
        # Baggage reaches the spans of this page and of every call that it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.user_id))
        await handle(scope, receive, send_with_headers)


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
