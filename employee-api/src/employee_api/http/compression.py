from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.http.negotiation import accepts_gzip

_LEVEL = 5
# Compress larger bodies in a thread, because compressing them would block the event loop for milliseconds.
_MAX_BYTES_IN_LOOP = 16 * 1024


class Compression:
    """Gzip compression. Unlike Starlette's, it respects `gzip;q=0` and never compresses responses with an entity tag.

    Compression would change the bytes that a strong tag identifies, and a weak tag would never match `If-Match`.
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

        headers = MutableHeaders(scope=scope)
        # Starlette only looks for the word "gzip", so it would compress even for `gzip;q=0`.
        headers["accept-encoding"] = "gzip" if accepts_gzip(headers) else "identity"
        await GZipMiddleware(app, compresslevel=_LEVEL, thread_minimum_size=_MAX_BYTES_IN_LOOP)(scope, receive, send)
