"""What all fake peers can do: count calls, fail, hang."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from chassis.errors import DomainError
from shop import money_pb2


@dataclass
class Trouble:
    """What a peer does instead of answering: fail so many times, before or after its effect, or wait for an event."""

    error: DomainError | None = None
    times: int = 1_000_000
    after: bool = False
    gate: asyncio.Event | None = None


class FakePeer:
    """Counts calls by method and makes trouble."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.trouble: dict[str, Trouble] = {}

    def hold(self, method: str, *, after: bool = False) -> asyncio.Event:
        """Let calls wait until the event is set."""
        gate = asyncio.Event()
        self.trouble[method] = Trouble(gate=gate, after=after)
        return gate

    async def begin(self, method: str) -> None:
        """Count the call, and make trouble before its effect."""
        self.calls[method] += 1
        await self._meet(method, after=False)

    async def end(self, method: str) -> None:
        """Make trouble after its effect."""
        await self._meet(method, after=True)

    async def _meet(self, method: str, *, after: bool) -> None:
        trouble = self.trouble.get(method)
        if trouble is None or trouble.after is not after or trouble.times <= 0:
            return
        trouble.times -= 1
        if trouble.gate is not None:
            await trouble.gate.wait()
        if trouble.error is not None:
            raise trouble.error


def money(currency_code: str, nanos: int) -> money_pb2.Money:
    """An amount given in nanos."""
    return money_pb2.Money(currency_code=currency_code, units=nanos // 10**9, nanos=nanos % 10**9)
