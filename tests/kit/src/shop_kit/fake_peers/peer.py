"""The common part of all fake peers: counting calls, failing and hanging."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from chassis.errors import REFUSALS, DomainError, Unimplemented
from chassis.rpc.wire import money_to_wire
from chassis.values.money import Money
from shop import money_pb2
from shop_kit.waiting import wait_until

T = TypeVar("T")


@dataclass
class Fault:
    """How a method misbehaves: it raises the error, or waits for the gate, the given number of times.

    Attributes:
        after: after the method's effect; otherwise before it.
        then: what follows it.
    """

    error: DomainError | None = None
    times: int = 1_000_000
    after: bool = False
    gate: asyncio.Event | None = None
    then: "Fault | None" = None


class FakePeer:
    """Counts calls by method and injects faults.

    Attributes:
        orders: the orders that calls of a method were about, if they name one.
    """

    def __init__(self) -> None:
        self.orders: dict[str, set[str]] = defaultdict(set)
        self.calls: dict[str, int] = defaultdict(int)
        self.faults: dict[str, Fault] = {}

    def hold(self, method: str, *, after: bool = False) -> asyncio.Event:
        """Make calls wait until the returned event is set."""
        gate = asyncio.Event()
        self.faults[method] = Fault(gate=gate, after=after)
        return gate

    @asynccontextmanager
    async def holding(
        self, method: str, call: Coroutine[Any, Any, T], *, after: bool = False
    ) -> AsyncIterator[asyncio.Task[T]]:
        """Begin a call of the peer's user, and let it wait in the method until the context ends."""
        calls, gate = self.calls[method], self.hold(method, after=after)
        task = asyncio.create_task(call)
        await wait_until(lambda: self.calls[method] > calls)
        try:
            yield task
        finally:
            gate.set()
            await task

    def methods(self) -> list[str]:
        """Return the names of the methods that it serves."""
        return [name for name in dir(self) if name[0].isupper()]

    def fail(self, error: DomainError) -> None:
        """Make every method raise an error."""
        self.faults = {method: Fault(error) for method in self.methods()}

    async def begin(self, method: str, order_id: str | None = None) -> None:
        """Count the call and apply a fault before its effect."""
        self.calls[method] += 1
        if order_id is not None:
            self.orders[method].add(order_id)
        await self._apply_fault(method, after=False)

    async def end(self, method: str) -> None:
        """Apply a fault after its effect."""
        await self._apply_fault(method, after=True)

    async def _apply_fault(self, method: str, *, after: bool) -> None:
        fault = self.faults.get(method)
        if fault is None or fault.after is not after or fault.times <= 0:
            return
        fault.times -= 1
        if fault.times == 0 and fault.then is not None:
            self.faults[method] = fault.then
        if fault.gate is not None:
            await fault.gate.wait()
        if fault.error is not None:
            raise fault.error


async def record_refusals(calls: Iterable[Awaitable[object]], refused: Any) -> None:
    """Await one call after the other, and add the index and the reason of each refusal to a field of a response."""
    for index, call in enumerate(calls):
        try:
            await call
        except Unimplemented:
            raise
        except REFUSALS as error:
            refused.add(index=index, reason=error.reason)


def money(currency_code: str, nanos: int) -> money_pb2.Money:
    """Return an amount given in nanos."""
    return money_to_wire(Money(currency_code, nanos))
