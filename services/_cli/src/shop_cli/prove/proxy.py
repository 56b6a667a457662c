"""A TCP proxy that makes trouble: late, broken, half-open and doubled connections."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from shop_cli.local.ports import HOST

Mode = Literal["pass", "delay", "blackhole", "reset", "half-open", "duplicate"]
_CHUNK_BYTES = 65_536


@dataclass
class Proxy:
    """Stands before `target` (`host:port`) at `address`. `mode` may change at any time, also for open connections.

    pass: as if it weren't there. delay: every chunk, both ways, after `delay_seconds`. blackhole: nothing gets through,
    nobody is told. half-open: requests get through, replies don't. reset: open connections end at once, and new ones
    too. duplicate: what clients of new connections say is said to the target twice, over two connections, and the
    second one's replies are thrown away: every call is delivered twice.
    """

    target: str
    mode: Mode = "pass"
    delay_seconds: float = 0.0
    address: str = ""
    connections: int = 0
    _open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, mode: Mode, delay_seconds: float = 0.0) -> None:
        """Change the trouble."""
        self.mode, self.delay_seconds = mode, delay_seconds
        if mode == "reset":
            for writers in self._open.values():
                _reset(*writers)
        self._changed.set()
        self._changed = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client, until either side ends it."""
        self.connections += 1
        task = asyncio.current_task()
        if task is None:
            raise AssertionError
        writers = self._open[task] = [writer]
        try:
            if self.mode != "reset":
                await self._serve(reader, writer, writers)
        except OSError:
            pass  # nobody listens at the target
        finally:
            del self._open[task]
            _reset(*writers)

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: list[asyncio.StreamWriter]
    ) -> None:
        host, _, port = self.target.rpartition(":")
        readers = []
        for _ in range(2 if self.mode == "duplicate" else 1):
            peer_reader, peer_writer = await asyncio.open_connection(host, int(port))
            readers.append(peer_reader)
            writers.append(peer_writer)
        async with asyncio.TaskGroup() as tasks:
            pumps = [
                tasks.create_task(self._pump(reader, writers[1:], "requests")),
                tasks.create_task(self._pump(readers[0], [writer], "replies")),
                *(tasks.create_task(self._pump(each, [], "replies")) for each in readers[1:]),
            ]
            await asyncio.wait(pumps[:2], return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()

    async def _pump(
        self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter], kind: Literal["requests", "replies"]
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                while self.mode == "blackhole" or (self.mode == "half-open" and kind == "replies"):
                    await self._changed.wait()
                if self.mode == "delay":
                    await asyncio.sleep(self.delay_seconds)
                for writer in writers:
                    writer.write(chunk)
                    await writer.drain()


def _reset(*writers: asyncio.StreamWriter) -> None:
    """End connections without a goodbye."""
    for writer in writers:
        if not writer.transport.is_closing():
            # Closing a socket that lingers for no time sends RST.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    """A proxy on a free port of loopback."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.accept, HOST, 0)
    proxy.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
