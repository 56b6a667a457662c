"""A TCP proxy that injects network faults: delayed, broken, half-open and duplicated connections."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from shop_cli.local.ports import HOST
from shop_kit.waiting import close_listener, wait_until

Mode = Literal["pass", "delay", "blackhole", "lose", "reset", "half-open", "duplicate"]
_CHUNK_BYTES = 65_536
_LATE_REQUESTS_SECONDS = 2.0  # how long a connection without a client remains open for requests that it has sent


@dataclass(eq=False)
class _Connection:
    """An open connection: its writers, the client's first. `released`: its client is gone until that event is set."""

    writers: list[asyncio.StreamWriter]
    released: asyncio.Event | None = None
    is_opening: bool = True


@dataclass
class TcpProxy:
    """Forwards connections from `address` to `target` (both `host:port`). `set_mode` also affects open connections.

    Modes:
        pass: forward everything unchanged.
        delay: forward every chunk, in both directions, after `delay_seconds`.
        blackhole: forward nothing and leave connections open.
        lose: forward nothing, and nothing later over connections on which something was lost.
        half-open: forward requests, but no responses.
        reset: reset open connections, and new ones as they are accepted.
        duplicate: forward the requests of new connections over two connections and discard the responses of the
            second one, so that every call is delivered twice.
    """

    target: str
    mode: Mode = "pass"
    delay_seconds: float = 0.0
    address: str = ""
    connections: int = 0
    _open: dict[asyncio.Task[None], _Connection] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def set_mode(self, mode: Mode, delay_seconds: float = 0.0) -> None:
        self.mode, self.delay_seconds = mode, delay_seconds
        if mode == "reset":
            for connection in self._open.values():
                if connection.released is None:
                    _reset(*connection.writers)
        self._changed.set()
        self._changed = asyncio.Event()

    def redirect(self, target: str) -> None:
        """Forward new connections to another target, and reset those to the old one."""
        self.target = target
        mode = self.mode
        self.set_mode("reset")
        self.set_mode(mode)

    def cut_off_clients(self) -> asyncio.Event:
        """Reset the clients of all open connections. What they have sent arrives once the returned event is set.

        It arrives as from a client that still waits: nothing cancels the requests.
        """
        released = asyncio.Event()
        for connection in self._open.values():
            if connection.released is None:
                connection.released = released
                _reset(connection.writers[0])
        return released

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one client connection until either side closes it."""
        self.connections += 1
        task = asyncio.current_task()
        if task is None:
            raise AssertionError
        connection = self._open[task] = _Connection([writer])
        try:
            if self.mode != "reset" and not self._closed:
                await self._forward(reader, connection)
        except OSError:
            pass  # nothing listens at the target
        finally:
            del self._open[task]
            _reset(*connection.writers)

    async def close(self) -> None:
        """Close all connections, also those that were accepted and are not forwarded yet."""
        self._closed = True
        # One that is cancelled while it opens would remain open.
        await wait_until(lambda: not any(connection.is_opening for connection in self._open.values()))
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        host, _, port = self.target.rpartition(":")
        target_readers = []
        for _ in range(2 if self.mode == "duplicate" else 1):
            target_reader, target_writer = await asyncio.open_connection(host, int(port))
            target_readers.append(target_reader)
            connection.writers.append(target_writer)
        connection.is_opening = False
        client, *targets = connection.writers
        async with asyncio.TaskGroup() as tasks:
            pumps = [
                tasks.create_task(self._pump(connection, reader, targets, "requests")),
                tasks.create_task(self._pump(connection, target_readers[0], [client], "responses")),
                *(
                    tasks.create_task(self._pump(connection, target_reader, [], "responses"))
                    for target_reader in target_readers[1:]
                ),
            ]
            await asyncio.wait(pumps[:2], return_when=asyncio.FIRST_COMPLETED)
            if connection.released is not None:
                await asyncio.sleep(_LATE_REQUESTS_SECONDS)
            for pump in pumps:
                pump.cancel()

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writers: list[asyncio.StreamWriter],
        kind: Literal["requests", "responses"],
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                while self.mode == "blackhole" or (self.mode == "half-open" and kind == "responses"):
                    await self._changed.wait()
                if self.mode == "lose":
                    await asyncio.Event().wait()
                if connection.released is not None:
                    if kind == "responses":
                        continue
                    await connection.released.wait()
                if self.mode == "delay":
                    await asyncio.sleep(self.delay_seconds)
                for writer in writers:
                    writer.write(chunk)
                    await writer.drain()


def _reset(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        if not writer.transport.is_closing():
            # Closing a socket with a linger time of zero sends RST instead of FIN.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


@asynccontextmanager
async def tcp_proxy(target: str) -> AsyncIterator[TcpProxy]:
    """Run a proxy to `host:port` on a free port of loopback while in the context."""
    proxy = TcpProxy(target)
    server = await asyncio.start_server(proxy.accept, HOST, 0)
    proxy.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        await close_listener(server)
        await proxy.close()
