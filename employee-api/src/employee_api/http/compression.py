"""Compresses responses with gzip for clients that accept it; exports are compressed as they are produced."""

import zlib

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from employee_api.http.negotiation import accepted_qualities

# The header of a gzip file and the work outweigh what a smaller response would save.
_MIN_BYTES = 500
# Compressing more takes milliseconds, for which the event loop must not stop.
_MAX_BYTES_IN_LOOP = 16 * 1024
_LEVEL = 5
_GZIP_WINDOW = 31
_COMPRESSIBLE = ("text/", "application/json", "application/problem+json")


class Compression:
    """Compresses text that is worth it. A response with an entity tag is sent as it is.

    A strong tag stands for one sequence of bytes, and clients send it back in `If-Match`, where a weak one never
    matches.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            accepted = _accepts_gzip(Headers(scope=scope))
            send = _Compressor(send, accepted=accepted).send
        await self._app(scope, receive, send)


class _Compressor:
    """Holds back the start of a response until its first chunk, which may change its length."""

    def __init__(self, send: Send, *, accepted: bool) -> None:
        self._send = send
        self._accepted = accepted
        self._start: Message | None = None
        self._stream: zlib._Compress | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] == "http.response.body":
            if self._start is not None:
                start, self._start = self._start, None
                message = await self._begin(start, message)
                await self._send(start)
            elif self._stream is not None:
                message = await _compressed(self._stream, message)
        await self._send(message)

    async def _begin(self, start: Message, first: Message) -> Message:
        """Set the headers of the response, and return its first chunk as it is sent."""
        headers = MutableHeaders(raw=start["headers"])
        if not _is_worth_it(headers):
            return first
        headers.add_vary_header("Accept-Encoding")
        if not self._accepted:
            return first
        headers["content-encoding"] = "gzip"
        self._stream = zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW)
        first = await _compressed(self._stream, first)
        if "content-length" in headers:
            headers["content-length"] = str(len(first["body"]))
        return first


def _accepts_gzip(headers: Headers) -> bool:
    # `gzip;q=0` refuses it, even beside `*`.
    qualities = accepted_qualities(headers.getlist("accept-encoding"))
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _is_worth_it(headers: Headers) -> bool:
    if "etag" in headers or "content-encoding" in headers:
        return False
    # A response without a length is streamed; those without a body have no type.
    length = int(headers.get("content-length", _MIN_BYTES))
    return length >= _MIN_BYTES and headers.get("content-type", "").startswith(_COMPRESSIBLE)


async def _compressed(stream: "zlib._Compress", message: Message) -> Message:
    body: bytes = message.get("body", b"")
    # A flushed chunk reaches the client at once, instead of when the compressor has enough for a block.
    flush = zlib.Z_SYNC_FLUSH if message.get("more_body", False) else zlib.Z_FINISH

    def compress() -> bytes:
        return stream.compress(body) + stream.flush(flush)

    in_thread = len(body) > _MAX_BYTES_IN_LOOP
    return {**message, "body": await to_thread.run_sync(compress) if in_thread else compress()}
