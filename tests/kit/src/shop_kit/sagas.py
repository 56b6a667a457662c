"""Sagas step by step: with the real journal, on SQLite in memory, and with peers that follow the contract.

A subclass of World decides what happens next, and so which faults there are.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from typing_extensions import override

from chassis.sql.database import Database, Parameters, Row, Statement
from chassis.sql.migrate import migrate
from chassis.sql.sqlite import add_functions, fetch
from chassis.values.addresses import Address
from chassis.values.money import Money
from checkout_service import commands, saga
from checkout_service.commands import Unsupported
from checkout_service.domain import OPEN, Order, OrderLine, State, Transition, order_id_of
from checkout_service.journal.opening import MIGRATIONS
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import Entry
from shop_kit.saga_peers import Content, Payment, Shipping

SCOPE = "scope"

_LOOP = asyncio.new_event_loop()


def now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing but its own tasks."""
    return _LOOP.run_until_complete(work)


def migrated_schema() -> bytes:
    """Return an empty journal, serialized."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkout.db")
        migrate(f"sqlite:///{path}", MIGRATIONS)
        connection = sqlite3.connect(path)
        schema = connection.serialize()
        connection.close()
    return schema


class MemoryDatabase(Database):
    """SQLite in memory, with a simulated clock and without threads."""

    def __init__(self, schema: bytes) -> None:
        self.seconds = 0.0
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        add_functions(self.connection, lambda: self.seconds)
        self.connection.deserialize(schema)

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        return [self.run(text, parameters) for text, parameters in batch]

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        return self.run(text, parameters)

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return self.run(text, parameters)

    def run(self, text: str, parameters: Parameters) -> list[Row]:
        return fetch(self.connection, text, parameters)


@dataclass
class Task:
    """A saga that a worker runs, and the command that it performs next."""

    steps: saga.Saga
    entry: Entry
    command: Any = None

    def __post_init__(self) -> None:
        self.command = next(self.steps)


class World:
    """The requests for one cart, the workers that run them, and the peers that they call."""

    def __init__(self, database: Database, payment: Payment, shipping: Shipping) -> None:
        self.journal = SqlJournal(database, "worker")
        self.payment = payment
        self.shipping = shipping

    def entry(self) -> Entry | None:
        found: Entry | None = now(self.journal.find(SCOPE))
        return found

    def new_order(self, request: str, price: int) -> Entry:
        lines = (OrderLine("mug", 1, Money("EUR", price * 10**9)),)
        address = Address(request, "Berlin", "", "Germany", 1)
        order = Order(order_id_of(SCOPE), "user", "a@b.example", "etag", address, lines, Money("EUR", 0))
        return Entry(SCOPE, request, order)

    def claim_expired(self, limit: int) -> Iterator[Entry]:
        """Claim orders as one turn of every recovery loop does."""
        for state, failed in product(OPEN, (False, True)):
            yield from now(self.journal.claim_expired(state, limit, failed=failed))

    def charged(self, task: Task) -> Content:
        return Content(task.entry.fingerprint, task.entry.order.total.total_nanos // 10**9)

    def shipped(self, task: Task) -> Content:
        return replace(self.charged(task), request=task.entry.order.address.street_address)

    def perform(self, task: Task) -> Any:
        """Perform the task's command as Executor does. Return its result."""
        match task.command:
            case commands.Insert():
                return now(self.journal.insert(task.entry)) is None
            case commands.Update(transition):
                return self._update(task, transition)
            case commands.Restore():
                is_lost = task.entry.is_new and now(self.journal.read(task.entry.order_id)) is None
                return is_lost and now(self.journal.insert(task.entry)) is None
            case commands.StartRemoval() | commands.Send():
                return None
            case commands.Wait():
                return True
        return self.request(task)()

    def request(self, task: Task) -> Callable[[], Any]:
        """Return the call that the task's command makes; it does not change when the task goes on."""
        claim = task.entry.claim
        charged, shipped = self.charged(task), self.shipped(task)
        match task.command:
            case commands.Charge(retry) if retry and not self.payment.has_ledger:
                return Unsupported
            case commands.Charge():
                return lambda: self.payment.charge(claim.charge_key, charged)
            case commands.Resolve():
                return lambda: self.payment.resolve(claim.charge_key, charged)
            case commands.Void():
                return lambda: self.payment.void(claim.charge_key)
            case commands.ResolveShipment():
                return lambda: self.shipping.resolve(claim.ship_key)
        return lambda: self.shipping.ship(claim.ship_key, shipped)

    def _update(self, task: Task, transition: Transition) -> bool:
        entry, after = task.entry, transition.after
        if not now(self.journal.update(entry.claim, transition)):
            return False
        advance = int(after is State.CHARGING)
        task.entry = replace(
            entry,
            state=after,
            attempt=entry.attempt + advance,
            epoch=entry.epoch + advance,
            tracking_id=transition.tracking_id,
        )
        return True
