"""Compresses responses with gzip for clients that accept it; exports are compressed as they are produced."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from employee_api.http.problems import accepted_qualities

_LEVEL = 5
# Compressing more takes milliseconds, which would block the event loop.
_MAX_BYTES_IN_LOOP = 16 * 1024


class Compression:
    """Starlette's compression, except that it respects `gzip;q=0` and leaves responses with an entity tag as they are.

    A strong tag identifies one sequence of bytes, and a weak one would never match in `If-Match`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def app(scope: Scope, receive: Receive, compress: Send) -> None:
            chosen = compress

            async def send_or_compress(message: Message) -> None:
                nonlocal chosen
                if message["type"] == "http.response.start" and "etag" in Headers(raw=message["headers"]):
                    chosen = send
                await chosen(message)

            await self._app(scope, receive, send_or_compress)

        if scope["type"] == "http":
            headers = MutableHeaders(scope=scope)
            # Starlette looks for the word "gzip" and ignores its quality.
            headers["accept-encoding"] = "gzip" if _accepts_gzip(headers) else "identity"
        await GZipMiddleware(app, compresslevel=_LEVEL, thread_minimum_size=_MAX_BYTES_IN_LOOP)(scope, receive, send)


def _accepts_gzip(headers: Headers) -> bool:
    # `gzip;q=0` refuses it, even beside `*`.
    qualities = accepted_qualities(headers.getlist("accept-encoding"))
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)
