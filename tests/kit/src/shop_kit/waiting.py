"""Wait for what other processes do in their own time."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, overload

T = TypeVar("T")

PATIENCE_SECONDS = 300.0  # however busy the machine is, what has not happened by then will not

_POLL_SECONDS = 0.02


@overload
async def wait_until(condition: Callable[[], Awaitable[T]], timeout_seconds: float = PATIENCE_SECONDS) -> T: ...
@overload
async def wait_until(condition: Callable[[], T], timeout_seconds: float = PATIENCE_SECONDS) -> T: ...
async def wait_until(condition: Callable[[], T | Awaitable[T]], timeout_seconds: float = PATIENCE_SECONDS) -> T:
    """Call the condition repeatedly and return its first true value. Raise TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            value = condition()
            if result := await value if isinstance(value, Awaitable) else value:
                return result
            await asyncio.sleep(_POLL_SECONDS)


async def wait_for_result(call: Callable[[], Awaitable[T]], accept: Callable[[T], object]) -> T:
    """Await a call repeatedly and return its first result that is accepted. Raise TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if accept(result := await call()):
                return result
            await asyncio.sleep(_POLL_SECONDS)


async def close_listener(server: asyncio.Server) -> None:
    """Accept no more connections, let the accepted ones reach their handlers in the next turns, and close."""
    # A closed server fails to open what it has just accepted, and leaves it unclosed.
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(5):
        await asyncio.sleep(0)
    server.close()


@asynccontextmanager
async def listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yield a port whose connections are handled; in the end abort those that are open, also those just accepted."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await handle(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close_listener(server)
        for writer in writers:
            with suppress(AttributeError):  # before Python 3.11.4, of a TLS connection that was closed twice
                writer.transport.abort()
        await asyncio.sleep(0)
