"""Wraps every request: opens its session, rejects forms of other sites, adds headers to the response."""

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.propagation import add_baggage
from storefront_service.domain import session_label
from storefront_service.sessions import Session, SessionSigner
from storefront_service.web.headers import add_security_headers
from storefront_service.web.origin import is_foreign

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
                add_security_headers(headers)
                if session.cookie is not None and not is_static:
                    headers.append("set-cookie", f"{COOKIE}={session.cookie}; {self._attributes}")
            await send(message)

        handle = self._forbidden if _is_foreign_form(scope) else self._app
        # Baggage reaches the spans of this page and of every call that it makes.
        add_baggage(semconv.SESSION_ID, session_label(session.user_id))
        await handle(scope, receive, send_with_headers)


def _is_foreign_form(scope: Scope) -> bool:
    return scope["method"] not in {"GET", "HEAD"} and is_foreign(Headers(scope=scope))
