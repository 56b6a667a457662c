"""Every service's smoke call beside a bare echo in the same run: calls per second, CPU per call, memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import Message

from shop.cart_pb2 import GetCartRequest
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_kit.smoke import smoke_calls
from shop_lab.bench import clients, rounds
from shop_lab.bench.measure import bare_server, cpu_seconds, resident_megabytes
from shop_lab.bench.rounds import Figures, Row, Rows, Spread
from shop_lab.bench.shops import Running

ECHO = "echo"
MEMORY_CALLS = 100_000
# A service that writes to disk gets fewer calls: as many as it answers in this time, alone.
MEMORY_SECONDS = 60
_ROUND_CALLS = 4_000
_ROUND_SECONDS = 2
_WARM_UP_CALLS = 500
_CPU = "cpu_microseconds"


@dataclass(frozen=True)
class Target:
    """A request that h2load repeats, and the process that serves it."""

    address: str
    pid: int
    method: str
    request: Message

    async def load(self, calls: int) -> float:
        """Make the calls; return calls per second."""
        return await clients.h2load(self.address, self.method, self.request, calls)

    async def calls_in(self, seconds: float) -> int:
        """Warm the service up; return the number of calls that it answers in this time."""
        return max(1, int(await self.load(_WARM_UP_CALLS) * seconds))


def targets_in(shop: Shop) -> dict[str, Target]:
    """Return a target for each service whose smoke call can be repeated as it is, which excludes orders."""
    calls = {name: call for name, call in smoke_calls("bench").items() if not call.setup}
    return {
        name: Target(shop[name].address, shop[name].pid or 0, call.method, call.request) for name, call in calls.items()
    }


@asynccontextmanager
async def bare_echo() -> AsyncIterator[Target]:
    """Run the baseline: a grpc.aio server that does nothing but echo."""
    with reserved(1) as (port,):
        async with bare_server("echo", port) as pid:
            yield Target(f"127.0.0.1:{port}", pid, "shop.CartService/GetCart", GetCartRequest(user_id="bench"))


async def measure(running: Running, number_of_rounds: int) -> Rows:
    """Compare with the echo; `of_echo` is the echo's CPU per call divided by the service's in the same round."""
    async with bare_echo() as echo:
        targets = {ECHO: echo, **targets_in(running.shop)}
        calls = {name: min(_ROUND_CALLS, await target.calls_in(_ROUND_SECONDS)) for name, target in targets.items()}
        measurements = {name: partial(_round, target, calls[name]) for name, target in targets.items()}
        made = await rounds.interleaved(measurements, number_of_rounds)
    return {
        name: {**rounds.row(figures), "of_echo": rounds.ratio(made[ECHO], figures, _CPU)}
        for name, figures in made.items()
    }


async def _round(target: Target, calls: int) -> Figures:
    before = cpu_seconds([target.pid])
    calls_a_second = await target.load(calls)
    await asyncio.sleep(0.3)  # exporting the telemetry of these calls is part of their cost
    return {"calls_a_second": calls_a_second, _CPU: (cpu_seconds([target.pid]) - before) / calls * 1e6}


async def memory_under_load(running: Running, calls: int = MEMORY_CALLS) -> Rows:
    """Return each service's resident memory in the middle and after so many calls to all of them at once."""

    async with bare_echo() as echo:
        targets = {ECHO: echo, **targets_in(running.shop)}
        halves = {name: min(calls, await target.calls_in(MEMORY_SECONDS)) // 2 for name, target in targets.items()}
        rows = await asyncio.gather(
            *(memory(each.pid, halves[name], partial(each.load, halves[name])) for name, each in targets.items())
        )
    return dict(zip(targets, rows, strict=True))


async def memory(pid: int, calls: int, load_once: Callable[[], Awaitable[object]]) -> Row:
    """Return the resident memory of a process after so many calls, and after as many again."""
    found = {"calls": 2.0 * calls}
    for when in ("megabytes_midway", "megabytes"):
        await load_once()
        found[when] = resident_megabytes(pid)
    return {name: Spread.of([value]) for name, value in found.items()}
