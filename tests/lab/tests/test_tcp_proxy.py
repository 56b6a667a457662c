"""The proxy injects the fault of each mode."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shop_kit.tcp_proxy import TcpProxy, tcp_proxy

WAIT_SECONDS = 10


class EchoServer:
    """Sends every line back."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.received = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.lines.append(line)
            async with self.received:
                self.received.notify_all()
            writer.write(line)
        writer.close()

    async def wait_for_lines(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self.received:
            await self.received.wait_for(lambda: len(self.lines) >= count)


@pytest.fixture
async def echo() -> EchoServer:
    return EchoServer()


@pytest.fixture
async def proxy(echo: EchoServer) -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with tcp_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def connect_to(proxy: TcpProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def send_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello\n")
    return await asyncio.wait_for(reader.readline(), WAIT_SECONDS)


async def test_delay_affects_both_directions(proxy: TcpProxy) -> None:
    async with connect_to(proxy) as (reader, writer):
        proxy.set_mode("delay", 0.1)
        started = asyncio.get_running_loop().time()
        await send_hello(reader, writer)
        assert asyncio.get_running_loop().time() - started >= 0.2


async def test_blackhole_forwards_nothing_until_the_mode_changes(proxy: TcpProxy, echo: EchoServer) -> None:
    async with connect_to(proxy) as (reader, writer):
        await send_hello(reader, writer)
        proxy.set_mode("blackhole")
        writer.write(b"hello\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)
        assert echo.lines == [b"hello\n"]
        proxy.set_mode("pass")
        assert await asyncio.wait_for(reader.readline(), WAIT_SECONDS) == b"hello\n"


async def test_half_open_forwards_requests_but_no_responses(proxy: TcpProxy, echo: EchoServer) -> None:
    async with connect_to(proxy) as (reader, writer):
        proxy.set_mode("half-open")
        writer.write(b"hello\n")
        await echo.wait_for_lines(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)


async def test_reset_ends_open_and_new_connections(proxy: TcpProxy) -> None:
    async with connect_to(proxy) as (reader, writer):
        await send_hello(reader, writer)
        proxy.set_mode("reset")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readexactly(1), WAIT_SECONDS)
        async with connect_to(proxy) as (second, _):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(second.readexactly(1), WAIT_SECONDS)


async def test_new_connections_pass_while_requests_of_old_ones_are_held(proxy: TcpProxy) -> None:
    async with connect_to(proxy) as (reader, writer):
        await send_hello(reader, writer)
        proxy.cut_off_clients()
        async with connect_to(proxy) as (second_reader, second_writer):
            assert await send_hello(second_reader, second_writer) == b"hello\n"


async def test_duplicate_delivers_requests_twice_and_responses_once(proxy: TcpProxy, echo: EchoServer) -> None:
    proxy.set_mode("duplicate")
    async with connect_to(proxy) as (reader, writer):
        assert await send_hello(reader, writer) == b"hello\n"
        await echo.wait_for_lines(2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)


async def test_a_connection_that_is_accepted_while_the_proxy_closes_is_reset(proxy: TcpProxy) -> None:
    proxy.set_mode("blackhole")
    await proxy.close()
    async with connect_to(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), WAIT_SECONDS)
