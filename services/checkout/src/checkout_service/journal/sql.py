"""The journal in SQL, on any database that runs its statements."""

from collections.abc import Collection, Sequence
from typing import Any

import orjson
from typing_extensions import override

from chassis.paging import Position
from checkout_service.domain import PlacedOrder, State, Transition
from checkout_service.journal import statements
from checkout_service.journal.database import Database, Row, Statement
from checkout_service.journal.rows import (
    event_from_row,
    first_entry,
    new_order_to_row,
    readable_entries,
    steps_of,
    transition_to_row,
)
from checkout_service.ports import LEASE_SECONDS, Entry, Event, Journal, NewOrder, OutboxItem, Sent, Statistics

OUTBOX_LEASE_SECONDS = 5
"""How long the worker that placed an order has for its outbox items before other workers try."""

REPLAY_SECONDS = 3600
"""How long an order is found by its fingerprint alone."""

STUCK_SECONDS = 60
"""An unfinished order without a change of state for this long needs operator attention."""


class SqlJournal(Journal):
    """A journal in a database that has the tables of `migrations`.

    Args:
        worker: name of this replica, in leases and histories.
        lease_seconds: lease of the worker that serves the caller; a lease for recovery is twice as long.
    """

    def __init__(self, database: Database, worker: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds

    @override
    async def find(self, scope: str) -> Entry | None:
        return first_entry(await self._read(statements.FIND, scope=scope))

    @override
    async def find_recent(self, fingerprint: str) -> Entry | None:
        found = await self._read(statements.FIND_RECENT, fingerprint=fingerprint, replay_seconds=REPLAY_SECONDS)
        return first_entry(found)

    @override
    async def read(self, order_id: str) -> Entry | None:
        return first_entry(await self._read(statements.READ, order_id=order_id))

    @override
    async def insert(self, new: NewOrder) -> Entry | None:
        order_id = new.order.order_id
        inserted, _ = await self._database.write(
            self._statement(statements.INSERT, **new_order_to_row(new)),
            self._events(order_id, 1, State.CHARGING, ("inserted", self._worker)),
        )
        if inserted:
            return None
        holder = await self.find(new.scope)
        # After a lost connection the insert was repeated, so the holder may be this order.
        return holder if holder is None or holder.order_id != order_id else None

    @override
    async def take_over(self, seen: Entry) -> Entry | None:
        step = "reopened" if seen.state is State.ABANDONED else "taken_over"
        taken, _ = await self._database.write(
            self._statement(statements.TAKE_OVER, order_id=seen.order_id, epoch=seen.epoch, state=seen.state),
            self._events(seen.order_id, seen.epoch + 1, State.CHARGING, (step, self._worker)),
        )
        return first_entry(taken)

    @override
    async def claim_expired(self, limit: int) -> list[Entry]:
        claimed, _ = await self._database.write(
            self._statement(statements.CLAIM_EXPIRED, limit=limit), self._statement(statements.CLAIM_EVENTS)
        )
        return readable_entries(claimed)

    @override
    async def update(self, order_id: str, epoch: int, transition: Transition) -> bool:
        after, row = transition.after, transition_to_row(transition)
        batch = [
            self._statement(statements.UPDATE, order_id=order_id, epoch=epoch, **row),
            self._events(order_id, epoch, after, *steps_of(transition)),
        ]
        if after is State.SHIPPED:
            batch.append(self._statement(statements.FILL_OUTBOX, order_id=order_id, epoch=epoch))
        if (await self._database.write(*batch))[0]:
            return True
        # After a lost connection the update was repeated. Only this worker writes with this epoch.
        found = await self.read(order_id)
        return found is not None and found.epoch == epoch and found.state is after

    @override
    async def release(self, order_id: str, epoch: int, *, delay_seconds: float, reason: str) -> None:
        await self._database.write(
            self._statement(
                statements.RELEASE, order_id=order_id, epoch=epoch, delay_seconds=delay_seconds, reason=reason
            ),
            self._statement(statements.RELEASE_EVENT, order_id=order_id, epoch=epoch),
        )

    @override
    async def release_own(self) -> None:
        await self._database.write(self._statement(statements.RELEASE_OWN))

    @override
    async def claim_outbox(self, limit: int) -> list[OutboxItem]:
        (claimed,) = await self._database.write(self._statement(statements.CLAIM_OUTBOX, limit=limit))
        if not claimed:
            return []
        items = [{"order_id": order_id} for order_id in {row["order_id"] for row in claimed}]
        found = readable_entries(await self._read(statements.READ_MANY, items))
        placed = {entry.order_id: PlacedOrder(entry.order, entry.tracking_id) for entry in found}
        return [
            OutboxItem(row["kind"], row["failures"], placed[row["order_id"]])
            for row in claimed
            if row["order_id"] in placed
        ]

    @override
    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        values = {"order_id": item.placed.order.order_id, "kind": item.kind}
        postpone = self._statement(statements.POSTPONE, **values, delay_seconds=delay_seconds, reason=reason)
        await self._database.write(postpone)

    @override
    async def settle(self, sent: Collection[Sent]) -> list[str]:
        items = [{"order_id": each.order_id, "kind": each.kind, "step": each.step} for each in sent]
        texts = (statements.DELETE_SENT, statements.SENT_EVENTS, statements.SET_DONE, statements.DONE_EVENTS)
        _, _, done, _ = await self._database.write(*(self._statement(text, items) for text in texts))
        return [row["order_id"] for row in done]

    @override
    async def statistics(self) -> Statistics:
        counts = await self._read(statements.COUNT_ACTIVE)
        (outbox,) = await self._read(statements.COUNT_OUTBOX)
        oldest = max((row["age"] for row in counts if row["state"] != State.NEEDS_REFUND), default=0.0)
        return Statistics({State(row["state"]): row["orders"] for row in counts}, max(oldest, 0.0), outbox["items"])

    @override
    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        items = [{"state": state} for state in states or State]
        found = await self._read(statements.LIST_STUCK if stuck else statements.LIST, items, limit=limit)
        return readable_entries(found)

    @override
    async def scan(self, after: Position, limit: int) -> list[Entry]:
        return readable_entries(await self._read(statements.SCAN, at=after.at, key=after.key, limit=limit))

    @override
    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {order_id: [] for order_id in order_ids}
        for row in await self._read(statements.OUTBOX_OF, [{"order_id": order_id} for order_id in order_ids]):
            found[row["order_id"]].append(row["kind"])
        return found

    @override
    async def history(self, order_id: str) -> list[Event]:
        return [event_from_row(row) for row in await self._read(statements.HISTORY, order_id=order_id)]

    @override
    async def check(self) -> None:
        await self._read(statements.CHECK)

    def _events(self, order_id: str, epoch: int, state: State, *steps: tuple[str, str]) -> Statement:
        """Add steps, each with its detail, to the history of an order that has this epoch and state."""
        items = [{"step": step, "detail": detail, "place": place} for place, (step, detail) in enumerate(steps)]
        return self._statement(statements.EVENTS, items, order_id=order_id, epoch=epoch, state=state)

    async def _read(self, text: str, items: Sequence[object] | None = None, **values: Any) -> list[Row]:
        return await self._database.read(*self._statement(text, items, **values))

    def _statement(self, text: str, items: Sequence[object] | None = None, **values: Any) -> Statement:
        values |= {
            "worker": self._worker,
            "lease_seconds": self._lease_seconds,
            "recovery_lease_seconds": 2 * self._lease_seconds,
            "outbox_lease_seconds": OUTBOX_LEASE_SECONDS,
            "stuck_seconds": STUCK_SECONDS,
        }
        if items is not None:
            values["items"] = orjson.dumps(items).decode()
        return text, values
