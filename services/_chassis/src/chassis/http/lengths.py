"""Refuses requests that a proxy before this server may see end elsewhere."""

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

log = structlog.get_logger()


class OneLength:
    """Refuses a request with both Content-Length and Transfer-Encoding, and what follows it on the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        app = self._app
        if "content-length" in headers and "transfer-encoding" in headers:
            log.warning("request refused", reason="length")
            app = JSONResponse({"error": "Bad Request"}, 400, {"connection": "close"})
        await app(scope, receive, send)
