"""Controls who can use the control room.

Every user of this machine, and every web page in their browsers, can reach loopback ports. So each request must carry
the token that `shop up` prints and, to prevent DNS rebinding, a local Host header. Other origins can't change anything.
"""

import base64
import hmac
from contextlib import suppress

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.http.serving import PAGE_HEADERS, with_headers


def access_control(port: int, token: str) -> list[Middleware]:
    headers = Middleware(with_headers), Middleware(with_headers, headers=PAGE_HEADERS)
    return [*headers, Middleware(AccessControl, port=port, token=token)]


class AccessControl:
    """ASGI middleware that admits only requests with the token."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in ("localhost", "127.0.0.1")}
        # Browsers send cookies to every port of a host, so each shop needs its own cookie name.
        self._cookie = f"control-room-{port}"
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if the request is admitted."""
        if request.headers.get("host", "") not in self._hosts:
            return PlainTextResponse("unknown host\n", 421)
        is_read = request.method in {"GET", "HEAD"}
        if is_read and self._is_token(request.query_params.get("token", "")):
            # Redirect to a URL without the token, to keep the token out of the browser's history.
            response = RedirectResponse("/" + request.url.path.lstrip("/"), 303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return response
        has_header = self._is_token(_token_in_header(request))
        if not has_header and not self._is_token(request.cookies.get(self._cookie, "")):
            text = "open the link that `shop up` printed; programs send its token as a bearer token or Basic password\n"
            return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Basic realm="control room"'})
        # Browsers send Origin with every POST request. Other programs may omit it if they send the token in a header.
        own_origin = f"http://{request.headers['host']}"
        if not is_read and request.headers.get("origin", own_origin if has_header else "") != own_origin:
            return PlainTextResponse("a change must come from the control room's own page\n", 403)
        return None

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def _token_in_header(request: Request) -> str:
    """Return the request's bearer token or Basic authentication password; "" if there is neither."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    with suppress(ValueError):
        if scheme.lower() == "basic":
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    return ""
