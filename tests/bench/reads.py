"""Every service's smoke call beside a bare echo in the same run: calls per second, CPU per call, memory."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from google.protobuf.message import Message
from measure import cpu_seconds, load, resident_megabytes, running_script

from shop.cart_pb2 import GetCartRequest
from shop_cli.local.processes import Shop
from shop_testkit.smoke import smoke_calls

ECHO = "echo"
MEMORY_CALLS = 100_000
MEMORY_SECONDS = 60
_ROUNDS = 5
_ROUND_CALLS = 6_000
# A service that writes to disk gets fewer calls: as many as it answers in this time.
_ROUND_SECONDS = 3
_WARM_UP_CALLS = 500


@dataclass(frozen=True)
class Target:
    """A request that h2load repeats, and the process that serves it."""

    address: str
    pid: int
    method: str
    request: Message

    async def load(self, calls: int) -> float:
        """Make the calls; return calls per second."""
        return await load(self.address, self.method, self.request, calls)

    async def calls_in(self, seconds: float) -> int:
        """Warm the service up; return the number of calls that it answers in this time."""
        return max(1, int(await self.load(_WARM_UP_CALLS) * seconds))


@dataclass
class Figures:
    """One service's figures, one of each per round."""

    calls_a_second: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)


def targets_in(shop: Shop) -> dict[str, Target]:
    """Return a target for each service whose smoke call can be repeated as it is, which excludes orders."""
    calls = {name: call for name, call in smoke_calls("bench").items() if not call.setup}
    return {
        name: Target(shop[name].address, shop[name].pid or 0, call.method, call.request) for name, call in calls.items()
    }


async def measure(shop: Shop, echo_port: int) -> dict[str, dict[str, float]]:
    """Return medians of interleaved rounds; `of_echo` is the echo's CPU per call divided by the service's."""
    async with running_script(Path(__file__).with_name("echo_service.py"), echo_port) as echo_pid:
        echo = Target(f"127.0.0.1:{echo_port}", echo_pid, "shop.CartService/GetCart", GetCartRequest(user_id="bench"))
        targets = {ECHO: echo, **targets_in(shop)}
        figures = {name: Figures() for name in targets}
        calls = {name: min(_ROUND_CALLS, await target.calls_in(_ROUND_SECONDS)) for name, target in targets.items()}
        for _ in range(_ROUNDS):
            for name, target in targets.items():
                await _round(figures[name], target, calls[name])
        return {name: _summary(figures[name], figures[ECHO], target.pid) for name, target in targets.items()}


async def _round(figures: Figures, target: Target, calls: int) -> None:
    before = cpu_seconds([target.pid])
    figures.calls_a_second.append(await target.load(calls))
    await asyncio.sleep(0.3)  # exporting the telemetry of these calls is part of their cost
    figures.cpu_microseconds.append((cpu_seconds([target.pid]) - before) / calls * 1e6)


def _summary(figures: Figures, echo: Figures, pid: int) -> dict[str, float]:
    return {
        "calls_a_second": round(median(figures.calls_a_second)),
        "cpu_microseconds": round(median(figures.cpu_microseconds)),
        "of_echo": round(median(echo.cpu_microseconds) / median(figures.cpu_microseconds), 2),
        "rss_megabytes": round(resident_megabytes(pid), 1),
    }


async def memory_under_load(shop: Shop) -> dict[str, dict[str, float]]:
    """Return each service's resident memory after MEMORY_CALLS calls, or those of MEMORY_SECONDS, and as many again."""
    rows: dict[str, dict[str, float]] = {}
    for name, target in targets_in(shop).items():
        calls = min(MEMORY_CALLS, await target.calls_in(MEMORY_SECONDS))
        await target.load(calls)
        first = resident_megabytes(target.pid)
        await target.load(calls)
        second = resident_megabytes(target.pid)
        rows[name] = {"calls": calls, "megabytes": round(first, 1), "megabytes_later": round(second, 1)}
    return rows
