"""The proxy makes the trouble that it is told to make."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shop_cli.prove.proxy import Proxy, proxied

WAIT_SECONDS = 10


class Echo:
    """Answers each line with itself."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.heard = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.lines.append(line)
            async with self.heard:
                self.heard.notify_all()
            writer.write(line)
        writer.close()

    async def until_heard(self, times: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self.heard:
            await self.heard.wait_for(lambda: len(self.lines) >= times)


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@asynccontextmanager
async def proxy_to(echo: Echo) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with proxied(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def client_of(proxy: Proxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello\n")
    return await asyncio.wait_for(reader.readline(), WAIT_SECONDS)


async def test_it_passes_on_what_both_sides_say(echo: Echo) -> None:
    async with proxy_to(echo) as proxy, client_of(proxy) as (reader, writer):
        assert await said(reader, writer) == b"hello\n"


async def test_it_delays(echo: Echo) -> None:
    async with proxy_to(echo) as proxy, client_of(proxy) as (reader, writer):
        proxy.set("delay", 0.1)
        started = asyncio.get_running_loop().time()
        await said(reader, writer)
        assert asyncio.get_running_loop().time() - started >= 0.2


async def test_a_blackhole_keeps_everything_until_it_heals(echo: Echo) -> None:
    async with proxy_to(echo) as proxy, client_of(proxy) as (reader, writer):
        await said(reader, writer)
        proxy.set("blackhole")
        writer.write(b"hello\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)
        assert echo.lines == [b"hello\n"]
        proxy.set("pass")
        assert await asyncio.wait_for(reader.readline(), WAIT_SECONDS) == b"hello\n"


async def test_a_half_open_connection_delivers_and_keeps_the_reply(echo: Echo) -> None:
    async with proxy_to(echo) as proxy, client_of(proxy) as (reader, writer):
        proxy.set("half-open")
        writer.write(b"hello\n")
        await echo.until_heard(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)


async def test_a_reset_ends_open_connections_and_new_ones(echo: Echo) -> None:
    async with proxy_to(echo) as proxy, client_of(proxy) as (reader, writer):
        await said(reader, writer)
        proxy.set("reset")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readexactly(1), WAIT_SECONDS)
        async with client_of(proxy) as (second, _):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(second.readexactly(1), WAIT_SECONDS)


async def test_it_delivers_twice_and_replies_once(echo: Echo) -> None:
    async with proxy_to(echo) as proxy:
        proxy.set("duplicate")
        async with client_of(proxy) as (reader, writer):
            assert await said(reader, writer) == b"hello\n"
            await echo.until_heard(2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.2)
