"""Frames of HTTP/2, for clients that break its rules or gRPC's."""

import asyncio
import struct
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(**values: int) -> bytes:
    """Return the frame of settings by their numbers, such as `_4=0` for an initial window that is closed."""
    pairs = (struct.pack(">HI", int(name[1:]), value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings()
"""What a client sends first, with a frame of no settings."""


def header(name: bytes, value: bytes) -> bytes:
    """Return a header in HPACK's literal form."""
    return b"\0" + b"".join(_length(len(text)) + text for text in (name, value))


def _length(number: int) -> bytes:
    if number < 127:
        return bytes([number])
    encoded, number = b"\x7f", number - 127
    while number >= 128:
        encoded, number = encoded + bytes([number % 128 + 128]), number // 128
    return encoded + bytes([number])


def call(
    path: bytes = b"/grpc.health.v1.Health/Check",
    *,
    stream: int = 1,
    body: bytes | None = b"",
    metadata: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return frames that begin a call, and half-close it after its body, unless that is None.

    Underscores in names of metadata become hyphens.
    """
    headers = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"test"}
    headers |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    headers |= {name.replace("_", "-").encode(): value for name, value in (metadata or {}).items()}
    block = b"".join(header(name, value) for name, value in headers.items())
    ends = _END_STREAM if body == b"" else 0
    begin = frame(HEADERS, _END_HEADERS | ends, stream, block)
    return begin + frame(DATA, _END_STREAM, stream, body) if body else begin


def message(content: bytes) -> bytes:
    """Return a message of gRPC, uncompressed."""
    return b"\0" + len(content).to_bytes(4, "big") + content


@dataclass
class Connection:
    """A connection to a server of HTTP/2, that answers its settings and pings.

    Attributes:
        settings: of the server, by number.
        resets: error codes by stream.
        ended: streams whose response is complete.
        received: headers and data of each stream.
        closed: set when the server has closed the connection.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    settings: dict[int, int] = field(default_factory=dict)
    resets: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    received: dict[int, bytes] = field(default_factory=lambda: defaultdict(bytes))
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: "asyncio.Task[None] | None" = None

    @classmethod
    async def open(cls, port: int, sent: bytes = PREFACE) -> "Connection":
        connection = cls(*await asyncio.open_connection("127.0.0.1", port))
        connection._reading = asyncio.create_task(connection._read())
        connection.writer.write(sent)
        return connection

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    def close(self) -> None:
        if self._reading:
            self._reading.cancel()
        self.writer.close()

    async def _read(self) -> None:
        try:
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self._handle(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        except (asyncio.IncompleteReadError, OSError):
            self.closed.set()

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & _ACK:
            self.settings |= dict(struct.iter_unpack(">HI", payload))
            self.writer.write(frame(SETTINGS, _ACK, 0))
        elif kind == PING and not flags & _ACK:
            self.writer.write(frame(PING, _ACK, 0, payload))
        elif kind == RESET:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind in (HEADERS, DATA):
            self.received[stream] += payload
            if flags & _END_STREAM:
                self.ended.add(stream)
