"""The proxy injects the fault of each mode: some tests of orders would pass without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shop_kit.tcp_proxy import TcpProxy, tcp_proxy
from shop_kit.waiting import wait_until


@asynccontextmanager
async def echo(received: list[bytes]) -> AsyncIterator[TcpProxy]:
    """Run a proxy to a server that sends every line back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(line)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, tcp_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.readline(), 0.2)
    except TimeoutError:
        return True
    return False


async def test_blackhole_forwards_nothing_and_half_open_no_responses() -> None:
    received: list[bytes] = []
    async with echo(received) as proxy, connected(proxy) as (reader, writer):
        proxy.set_mode("blackhole")
        writer.write(b"hello\n")
        assert await is_silent(reader)
        assert received == []
        proxy.set_mode("half-open")
        await wait_until(lambda: received == [b"hello\n"])
        assert await is_silent(reader)


async def test_reset_ends_open_and_new_connections() -> None:
    async with echo([]) as proxy, connected(proxy) as (reader, writer):
        writer.write(b"hello\n")
        await reader.readline()
        proxy.set_mode("reset")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        async with connected(proxy) as (second, _):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await second.readexactly(1)


async def test_requests_of_clients_that_were_cut_off_arrive_late_and_those_of_others_at_once() -> None:
    received: list[bytes] = []
    async with echo(received) as proxy, connected(proxy) as (reader, writer):
        proxy.set_mode("blackhole")
        writer.write(b"late\n")
        assert await is_silent(reader)
        released = proxy.cut_off_clients()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        proxy.set_mode("pass")
        async with connected(proxy) as (second, second_writer):
            second_writer.write(b"hello\n")
            assert await second.readline() == b"hello\n"
        assert received == [b"hello\n"]
        released.set()
        await wait_until(lambda: received == [b"hello\n", b"late\n"])


async def test_duplicate_delivers_requests_twice_and_responses_once() -> None:
    received: list[bytes] = []
    async with echo(received) as proxy:
        proxy.set_mode("duplicate")
        async with connected(proxy) as (reader, writer):
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            await wait_until(lambda: received == [b"hello\n"] * 2)
            assert await is_silent(reader)
