"""What stands between clients and a PostgreSQL server, such as a pooler; PyPI has no package of PgBouncer."""

import asyncio
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import psycopg

from shop_kit.waiting import close_listener

_SSL_REQUEST, _READY, _KEY, _AUTHENTICATION = 80_877_103, b"Z", b"K", b"R"
_DONE = {0, 12}  # kinds of authentication messages that expect no response
_AWAITS_READY = {b"Q", b"S"}  # a query, and the end of a pipeline
_END = b"X"


@dataclass(eq=False)
class Peer:
    """A connection of PostgreSQL's protocol."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self) -> bytes:
        """Return one message."""
        kind = await self.reader.readexactly(1)
        length = await self.reader.readexactly(4)
        return kind + length + await self.reader.readexactly(struct.unpack("!I", length)[0] - 4)


@dataclass(eq=False)
class Relay:
    """Stands between clients and the server at a URL while in the context; subclasses say what it does in `serve`."""

    server: str
    port: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.listener = await asyncio.start_server(self.accept, "127.0.0.1", self.port)
        self.port = self.listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_listener(self.listener)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for writer in self.writers:
            writer.transport.abort()

    def url(self, *ports: int) -> str:
        """Return the URL of the database, at these ports of other servers before the relay's own."""
        parts = psycopg.conninfo.conninfo_to_dict(self.server)
        addresses = ",".join(f"127.0.0.1:{port}" for port in (*ports, self.port))
        login = f"{parts.get('user', 'postgres')}:{parts.get('password') or ''}"
        return f"postgresql://{login}@{addresses}/{parts['dbname']}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.tasks.append(asyncio.create_task(self.serve(Peer(reader, writer))))

    async def connect(self) -> Peer:
        """Connect to the server."""
        parts = psycopg.conninfo.conninfo_to_dict(self.server)
        host, port = str(parts["host"]), int(parts.get("port") or 5432)
        if host.startswith("/"):
            reader, writer = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            reader, writer = await asyncio.open_connection(host, port)
        self.writers.append(writer)
        return Peer(reader, writer)

    async def serve(self, client: Peer) -> None:
        raise NotImplementedError


@dataclass(eq=False)
class TransactionPooler(Relay):
    """As PgBouncer, runs every transaction in another session than the one before, if there are several clients.

    The sessions are those that its clients open; it reports a process id of its own.
    """

    idle: asyncio.Queue[Peer] = field(default_factory=asyncio.Queue)

    async def serve(self, client: Peer) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            self.idle.put_nowait(await self._log_in(client))
            while (message := await client.read())[:1] != _END:
                session = await self.idle.get()
                await self._run_transaction(client, session, message)
                self.idle.put_nowait(session)
        client.writer.close()

    async def _log_in(self, client: Peer) -> Peer:
        """Open a session with the client's name and password, and return it."""
        session = await self.connect()
        while True:
            length, code = struct.unpack("!II", await client.reader.readexactly(8))
            rest = await client.reader.readexactly(length - 8)
            if code != _SSL_REQUEST:
                break
            client.writer.write(b"N")
        assert b"\0options\0" not in rest, "PgBouncer refuses it"
        session.writer.write(struct.pack("!II", length, code) + rest)
        while (message := await session.read())[:1] != _READY:
            own = _KEY + struct.pack("!III", 12, 1, 1)
            client.writer.write(own if message[:1] == _KEY else message)
            if message[:1] == _AUTHENTICATION and struct.unpack("!I", message[5:9])[0] not in _DONE:
                session.writer.write(await client.read())
        client.writer.write(message)
        return session

    async def _run_transaction(self, client: Peer, session: Peer, message: bytes) -> None:
        """Forward messages until the session is idle again."""
        while True:
            session.writer.write(message)
            if message[:1] in _AWAITS_READY:
                while (response := await session.read())[:1] != _READY:
                    client.writer.write(response)
                client.writer.write(response)
                await client.writer.drain()
                if response[5:] == b"I":
                    return
            message = await client.read()
