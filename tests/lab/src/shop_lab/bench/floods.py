"""Resident memory of a service before, during and after floods of its gRPC port, each of a fresh process."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from shop_kit.http2 import (
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    PREFACE,
    RESET,
    Connection,
    call,
    frame,
    header,
    message,
    settings,
)
from shop_kit.processes import service_process
from shop_lab.bench.measure import resident_megabytes
from shop_lab.bench.rounds import Rows, Spread

_GET_CART, _LIST_PRODUCTS = b"/shop.CartService/GetCart", b"/shop.ProductCatalogService/ListProducts"
_LIKE_THE_IMAGE = {"MALLOC_ARENA_MAX": "1", "PYTHONOPTIMIZE": "2"}
_FLOOD_SECONDS, _SETTLING_SECONDS = 5, 6
_WINDOW, _STREAMS = 65_535, 100


@dataclass
class _Attacker:
    port: int
    connections: list[Connection] = field(default_factory=list)

    async def connect(self, count: int = 1, sent: bytes = PREFACE) -> list[Connection]:
        made = []
        for _ in range(count):
            with suppress(OSError):
                made.append(await Connection.open(self.port, sent))
        self.connections += made
        return made

    async def repeat(self, count: int, sent: Callable[[int], bytes]) -> None:
        """Send on so many connections what the number of a round makes, for five seconds."""
        targets, until, number = await self.connect(count), time.monotonic() + _FLOOD_SECONDS, 0
        while time.monotonic() < until and not all(target.closed.is_set() for target in targets):
            for target in targets:
                with suppress(TimeoutError):
                    await asyncio.wait_for(target.send(sent(number)), 1)
            number += 1
            await asyncio.sleep(0)


async def _half_bodies(attacker: _Attacker, connections: int, streams: int, size: int) -> None:
    """Send all but the last byte of requests, as far as the server's windows allow."""

    async def fill(target: Connection, stream: int) -> None:
        left = message(bytes(size))[:-1]
        until, sent = time.monotonic() + _FLOOD_SECONDS, 0
        while left and stream not in target.ended and time.monotonic() < until:
            window = target.settings.get(4, _WINDOW) + target.credit[stream] - sent
            count = min(len(left), 16_384, window, _WINDOW + target.credit[0])
            if count <= 0:
                await asyncio.sleep(0.02)
                continue
            target.credit[0] -= count
            await target.send(frame(DATA, 0, stream, left[:count]))
            left, sent = left[count:], sent + count

    targets = await attacker.connect(connections)
    await asyncio.sleep(0.2)  # until their settings are known
    numbers = range(1, 2 * streams, 2)
    for target in targets:
        await target.send(b"".join(call(_GET_CART, stream=number, body=None) for number in numbers))
    await asyncio.gather(*(fill(target, number) for target in targets for number in numbers))


async def _bodiless(attacker: _Attacker, connections: int, streams: int) -> None:
    begun = b"".join(call(_GET_CART, stream=number, body=None) for number in range(1, 2 * streams, 2))
    for target in await attacker.connect(connections):
        await target.send(begun)


async def _unread(attacker: _Attacker) -> None:
    calls = [call(_LIST_PRODUCTS, stream=number, body=message(b"")) for number in range(1, 2 * _STREAMS, 2)]
    for target in await attacker.connect(20, PREFACE + settings(_4=0)):
        await target.send(b"".join(calls))


def _reset(number: int) -> bytes:
    first = 1 + number * _STREAMS
    streams = range(first, first + _STREAMS, 2)
    return b"".join(call(_GET_CART, stream=each, body=None) + frame(RESET, 0, each, bytes(4)) for each in streams)


def _endless(number: int) -> bytes:
    more = frame(CONTINUATION, 0, 1, header(b"x-a", bytes(10_000)))
    return more if number else frame(HEADERS, 1, 1, call(_GET_CART)[9:]) + more


async def _large_headers(attacker: _Attacker) -> None:
    for number in range(100):
        (target,) = await attacker.connect()
        await target.send(_endless(0) + 99 * _endless(1) + frame(CONTINUATION, 4, 1) if number else b"")


_ATTACKS: dict[str, Callable[[_Attacker], Awaitable[object]]] = {
    "60 requests that lack a byte of 3.9 MiB": lambda attacker: _half_bodies(attacker, 1, 60, 4_089_446),
    "2,000 requests that lack a byte of 64 KiB": lambda attacker: _half_bodies(attacker, 20, _STREAMS, 65_536),
    "10,000 calls without a request, 1 connection": lambda attacker: _bodiless(attacker, 1, 10_000),
    "10,000 calls without a request, 100 connections": lambda attacker: _bodiless(attacker, 100, _STREAMS),
    "10,000 connections": lambda attacker: attacker.connect(10_000),
    "10,000 connections that say nothing": lambda attacker: attacker.connect(10_000, b""),
    "100 times 1 MB of headers": _large_headers,
    "headers without end": lambda attacker: attacker.repeat(5, _endless),
    "calls that are reset at once": lambda attacker: attacker.repeat(5, _reset),
    "pings": lambda attacker: attacker.repeat(5, lambda _: 100 * frame(PING, 0, 0, bytes(8))),
    "settings": lambda attacker: attacker.repeat(5, lambda _: 100 * settings(_4=_WINDOW)),
    "2,000 responses that are not read": _unread,
}


async def measure() -> Rows:
    """Return megabytes of the service before, at the peak of, and six seconds after each flood."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return {name: await _flood(name) for name in _ATTACKS}


async def _flood(name: str) -> dict[str, Spread]:
    package = "product_catalog_service" if "responses" in name else "cart_service"
    async with service_process(package, **_LIKE_THE_IMAGE) as service, AsyncExitStack() as stack:
        attacker, pid = _Attacker(service.port), service.process.pid
        (warm,) = await attacker.connect()
        for number in range(1, 400, 2):
            await warm.send(call(_GET_CART, stream=number, body=message(b"\n\1u")))
            await asyncio.sleep(0.002)
        sizes = [resident_megabytes(pid)]
        watching = asyncio.create_task(_watch(pid, sizes))
        stack.callback(watching.cancel)
        await _ATTACKS[name](attacker)
        await asyncio.sleep(1)
        for connection in attacker.connections:
            connection.close()
        await asyncio.sleep(_SETTLING_SECONDS)
        figures = {"before": sizes[0], "during": max(sizes), "after": resident_megabytes(pid)}
    return {f"megabytes_{when}": Spread.of([size]) for when, size in figures.items()}


async def _watch(pid: int, sizes: list[float]) -> None:
    while True:
        sizes.append(resident_megabytes(pid))
        await asyncio.sleep(0.02)
