"""The proxy injects the fault of each mode: some tests of orders would pass without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shop_kit.tcp_proxy import Mode, TcpProxy, tcp_proxy
from shop_kit.waiting import wait_until

REQUEST = b"hello\n"


@asynccontextmanager
async def echo(mode: Mode, received: list[bytes]) -> AsyncIterator[TcpProxy]:
    """Run a proxy to a server that sends every line back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(line)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, tcp_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        proxy.set_mode(mode)
        yield proxy


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("mode", "delivered", "answered"), [("blackhole", 0, 0), ("half-open", 1, 0), ("duplicate", 2, 1)]
)
async def test_a_request_is_delivered_and_answered_as_often_as_its_mode_says(
    mode: Mode, delivered: int, answered: int
) -> None:
    received: list[bytes] = []
    async with echo(mode, received) as proxy, connected(proxy) as (reader, writer):
        writer.write(REQUEST)
        answers = [await reader.readline() for _ in range(answered)]
        await wait_until(lambda: len(received) == delivered)
        with pytest.raises(TimeoutError):  # nothing more comes
            await asyncio.wait_for(reader.readline(), 0.2)
    assert (received, answers) == ([REQUEST] * delivered, [REQUEST] * answered)


async def test_requests_of_clients_that_were_cut_off_arrive_late_and_those_of_others_at_once() -> None:
    received: list[bytes] = []
    async with echo("blackhole", received) as proxy, connected(proxy) as (reader, writer):
        writer.write(b"late\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)
        released = proxy.cut_off_clients()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        proxy.set_mode("pass")
        async with connected(proxy) as (other_reader, other_writer):
            other_writer.write(REQUEST)
            assert await other_reader.readline() == REQUEST
            assert received == [REQUEST]
            released.set()
            await wait_until(lambda: received == [REQUEST, b"late\n"])
            proxy.set_mode("reset")
            with pytest.raises(ConnectionResetError):
                await other_reader.readexactly(1)
