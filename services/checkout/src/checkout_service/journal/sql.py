"""The journal, which stores orders in PostgreSQL or SQLite."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any

import structlog

from chassis.background import shared_result
from chassis.sql.database import Database, Row, Statement, is_rejected, listed
from chassis.sql.queue_head import QueueHead
from chassis.sql.retention import Deletions
from chassis.values.paging import Position
from checkout_service.domain import MAX_OPEN_MISMATCHES, NEEDS_OPERATOR, OPEN, PLACED, RELEASED_CART, State, Transition
from checkout_service.journal import rows, statements
from checkout_service.ports import (
    LEASE_SECONDS,
    MAX_RETRY_DELAY_SECONDS,
    Entry,
    JournalUnavailable,
    OutboxItem,
    Statistics,
    new_owner,
)

log = structlog.get_logger()


OUTBOX_LEASE_SECONDS = 5
"""How long an order's outbox items are reserved for the worker that placed the order."""

STUCK_SECONDS = 60
"""An unfinished order whose state has not changed for this long needs operator attention."""

MAX_COUNTED = 1000
"""Orders dated in the future are counted only up to this limit."""

PROTOCOL = 1
"""The version of the journal's format. A release that changes the meaning of a column must increase this number. It
must still support the previous version, and use it until no replicas of the previous release remain."""

ANNOUNCE_SECONDS = 60.0
_REPLICA_SECONDS = 3 * ANNOUNCE_SECONDS  # a replica that hasn't announced itself for this long is considered gone

_RECOVERY_LEASES = 20
_INSERTS = 10
_COMPLETED_AT_ONCE = 100


class Journal:
    """Stores orders durably: when a method returns, its writes are on disk. All methods may raise JournalUnavailable.

    Args:
        database: a database that `migrations` has brought up to date.
        worker: this replica's name in leases and in the orders' histories.
        protocol: the highest protocol number that this replica supports.
        lease_seconds: how long an order is leased to the worker that serves the caller. Recovery leases it for twice
            as long.
    """

    def __init__(
        self, database: Database, worker: str, lease_seconds: float = LEASE_SECONDS, *, protocol: int = PROTOCOL
    ) -> None:
        delete = (statements.DELETE_ORDERS, statements.DELETE_EVENTS)
        self.deletions = Deletions(database, "orders", "order_id", statements.OLD, delete)
        self._database = database
        self._worker = worker
        self._protocol = protocol
        self._heads: defaultdict[object, QueueHead] = defaultdict(QueueHead)
        self._reading_due: asyncio.Task[set[tuple[str, bool]]] | None = None
        self._constants = {
            "worker": worker,
            "protocol": protocol,
            "replica_seconds": _REPLICA_SECONDS,
            "lease_seconds": lease_seconds,
            "recovery_lease_seconds": 2 * lease_seconds,
            # Twice the longest delay that statements add to the current time, to allow for small clock adjustments.
            "max_ahead_seconds": 2 * max(_RECOVERY_LEASES * lease_seconds, MAX_RETRY_DELAY_SECONDS),
            "stuck_seconds": STUCK_SECONDS,
        }

    async def find(self, scope: str) -> Entry | None:
        return rows.first_entry(await self._read(statements.FIND, scope=scope))

    async def find_of_cart(self, user_id: str, generation: str) -> Entry | None:
        """Return the order that holds the cart, if any. No order holds a cart without a generation ("")."""
        return rows.first_entry(await self._read(statements.FIND_OF_CART, user_id=user_id, cart_etag=generation))

    async def read(self, order_id: str) -> Entry | None:
        return rows.first_entry(await self._read(statements.READ, order_id=order_id))

    async def insert(self, new: Entry) -> Entry | None:
        """Record a new order as CHARGING and lease it, or return the order that already has its scope or cart."""
        for _ in range(_INSERTS):
            inserted, _ = await self._database.write(
                self._statement(statements.INSERT, **rows.new_order_to_row(new)),
                self._events(new, ("inserted", self._worker)),
            )
            if inserted:
                return None
            holder = await self.find(new.scope) or await self.find_of_cart(new.order.user_id, new.order.cart_generation)
            if holder is not None:
                # The insert may have been retried after a lost connection, so the holder may be the new order itself.
                return None if rows.claim_to_row(holder) == rows.claim_to_row(new) else holder
            await self.check()
        raise JournalUnavailable("the cart's orders change too fast")

    async def take_over(self, seen: Entry) -> Entry | None:
        """Lease a CHARGING order whose lease has expired. Return None if it has changed since `seen` was read."""
        held = replace(seen, epoch=seen.epoch + 1, owner=new_owner())
        taken, _ = await self._database.write(
            self._statement(statements.TAKE_OVER, **rows.claim_to_row(seen), new_owner=held.owner),
            self._events(held, ("taken_over", self._worker)),
        )
        return rows.first_entry(taken)

    async def reopen(self, seen: Entry, new: Entry) -> Entry | None:
        """Start the next attempt of an order in a RELEASED_CART state, replacing its content with the new order's.

        Return None if the order has changed since `seen` was read, or if another order holds the cart.
        """
        held = replace(seen, state=State.CHARGING, attempt=seen.attempt + 1, epoch=seen.epoch + 1, owner=new.owner)
        values = rows.new_order_to_row(new) | rows.claim_to_row(seen)
        reopened, _ = await self._database.write(
            self._statement(statements.REOPEN, **values, new_owner=held.owner),
            self._events(held, ("reopened", self._worker)),
        )
        if not reopened:
            await self.check()
        return rows.first_entry(reopened)

    async def claim_expired(self, state: State, limit: int, *, failed: bool) -> list[Entry]:
        """Lease up to `limit` orders in the given open state whose leases have expired.

        Each claimed order counts as failed until its state changes. With `failed`, claim only orders that have failed
        before; otherwise, claim only orders that have not.
        """
        return rows.readable_entries(await self._claim(state, limit, statements.CLAIM_EVENTS, failed=failed))

    async def update(self, held: Entry, transition: Transition) -> Entry | None:
        """Apply the transition if the order's claim and state are unchanged. Return the order, or None if they are not.

        A change to SHIPPED also adds the outbox items.
        """
        updated, after = held.after(transition), transition.after
        claim = rows.claim_to_row(updated)
        new_claim = {f"new_{name}": value for name, value in claim.items()}
        values = rows.claim_to_row(held) | rows.transition_to_row(transition) | new_claim
        batch = [self._statement(statements.UPDATE, **values), self._events(updated, *rows.steps_of(transition))]
        if after is State.SHIPPED:
            lease: dict[str, Any] = {"state": after, "outbox_lease_seconds": OUTBOX_LEASE_SECONDS}
            batch.append(self._statement(statements.FILL_OUTBOX, **claim, **lease))
        elif transition.before in PLACED:
            batch.append(self._statement(statements.DELETE_OUTBOX, **claim, state=after))
        if (await self._database.write(*batch))[0]:
            return updated
        # The update may have succeeded before the connection was lost. If so, the order has the new claim and state.
        found = await self.read(held.order_id)
        is_updated = found is not None and rows.claim_to_row(found) == claim and found.state is after
        return updated if is_updated else None

    async def release(self, held: Entry, *, delay_seconds: float, reason: str) -> None:
        """End the lease after a delay, unless another worker has taken over the order."""
        values = rows.claim_to_row(held)
        await self._database.write(
            self._statement(statements.RELEASE, **values, delay_seconds=delay_seconds, reason=reason),
            self._statement(statements.RELEASE_EVENT, **values),
        )

    async def release_own(self) -> None:
        """End the leases that this replica held before it restarted."""
        await self._database.write(self._statement(statements.RELEASE_OWN))

    async def claim_outbox(self, kind: str, limit: int, *, failed: bool) -> list[OutboxItem]:
        """Lease up to `limit` due outbox items of a kind. See `claim_expired` for `failed`."""
        claimed = await self._claim(kind, limit, failed=failed)
        failures = {row["order_id"]: row["failures"] for row in claimed}
        items = [{"order_id": order_id} for order_id in failures]
        found = await self._read(statements.READ_MANY, items) if items else ()
        return [OutboxItem(kind, entry, failures[entry.order_id]) for entry in rows.readable_entries(found)]

    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        """Make an outbox item due after a delay, and store its number of failures."""
        values = rows.item_to_row(item)
        postpone = self._statement(statements.POSTPONE, **values, delay_seconds=delay_seconds, reason=reason)
        await self._database.write(postpone)

    async def set_dead(self, order_id: str, kind: str, *, reason: str) -> None:
        """Make an outbox item a dead letter, which no worker claims until an operator requeues it."""
        values = {"order_id": order_id, "kind": kind, "reason": reason}
        await self._database.write(
            self._statement(statements.SET_DEAD, **values),
            self._statement(statements.NOTIFICATION_EVENT, **values, step=f"{kind}_dead_letter"),
        )

    async def requeue(self, order_id: str, *, confirm_again: bool = False) -> list[str]:
        """Make an order's dead letters due now, as if they had never failed. Return the kinds of the requeued items.

        With `confirm_again`, send a placed order's confirmation again instead, even if it was sent before.
        """
        text = statements.REQUEUE_OR_CONFIRM if confirm_again else statements.REQUEUE
        requeued, _ = await self._database.write(
            self._statement(text, order_id=order_id),
            self._statement(statements.NOTIFICATION_EVENT, order_id=order_id, step="requeued", reason=self._worker),
        )
        return sorted(row["kind"] for row in requeued)

    async def complete(self, sent: Collection[OutboxItem]) -> list[str]:
        """Delete sent outbox items unless claimed or requeued since. Return the ids of the orders that are now DONE."""
        return await self._set_done([*map(rows.item_to_row, sent)], statements.DELETE_SENT, statements.SENT_EVENTS)

    async def complete_leftover(self) -> list[str]:
        """Mark up to 100 SHIPPED orders without outbox items as DONE. Return their ids."""
        # Use a report, which doesn't delay other queries: while email is down, this query reads all SHIPPED orders.
        found = await self._report(statements.COMPLETE, limit=_COMPLETED_AT_ONCE)
        return await self._set_done([{"order_id": row["order_id"]} for row in found]) if found else []

    async def statistics(self) -> Statistics:
        counts = await self._report(statements.COUNT_ACTIVE)
        outbox = await self._report(statements.COUNT_OUTBOX)
        unsent = await self._report(statements.OLDEST_NOTIFICATION)
        (future,) = await self._report(statements.COUNT_FUTURE, limit=MAX_COUNTED)
        oldest = max((row["age"] for row in counts if row["state"] in OPEN), default=0.0)
        return Statistics(
            {State(row["state"]): row["orders"] for row in counts},
            max(oldest, 0.0),
            sum(row["items"] - row["dead"] for row in outbox),
            {row["kind"]: row["dead"] for row in outbox if row["dead"]},
            future["orders"],
            max([row["age"] for row in unsent], default=0.0),
            {State(row["state"]): row["age"] for row in counts if row["state"] in NEEDS_OPERATOR},
        )

    async def list_of_user(self, user_id: str, limit: int) -> list[Entry]:
        """Return the user's orders that still hold their carts, newest first."""
        return await self._list(statements.LIST_OF_USER, user_id=user_id, limit=limit)

    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        """Return orders in these states (default: any), newest first.

        With `stuck`, return only orders that are stuck, or DONE with a dead letter, oldest first.
        """
        if stuck:
            chosen = states or [*State]
            listed = await self._list(statements.LIST_STUCK, [{"state": state} for state in chosen], limit=limit)
            if State.DONE in chosen and (dead := await self._report(statements.LIST_DEAD)):
                ids = [{"order_id": row["order_id"]} for row in dead]
                listed += await self._list(statements.LIST_DONE_AMONG, ids, limit=limit)
            return sorted(listed, key=attrgetter("position"))[:limit]
        if not states:
            return await self._list(statements.LIST, limit=limit)
        # Run one query per state, so that no query reads rows that it does not return.
        found = [await self._report(_list_of(state), state=state, limit=limit) for state in set(states)]
        entries = (map(rows.entry_from_row, of_state) for of_state in found)  # only those that are returned are decoded
        return list(islice(heapq.merge(*entries, key=attrgetter("position"), reverse=True), limit))

    async def scan(self, after: Position, limit: int) -> list[Entry]:
        """Return up to `limit` orders created after a position, oldest first."""
        return await self._list(statements.SCAN, at=after.at, key=after.key, limit=limit)

    async def read_many(self, order_ids: Iterable[str]) -> list[Entry]:
        return await self._list(statements.READ_MANY, [{"order_id": order_id} for order_id in order_ids])

    async def settlements(self, order_ids: Iterable[str]) -> dict[str, str]:
        """Return the latest operator decision on each order, such as settled_refunded, by order id."""
        items = [{"order_id": order_id} for order_id in order_ids]
        found = await self._report(statements.SETTLEMENTS, items) if items else ()
        return {row["order_id"]: row["step"] for row in found}

    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, dict[str, bool]]:
        """Return each order's outbox items, as a mapping from the item's kind to whether it is a dead letter."""
        found: dict[str, dict[str, bool]] = {order_id: {} for order_id in order_ids}
        for row in await self._report(statements.OUTBOX_OF, [{"order_id": order_id} for order_id in order_ids]):
            found[row["order_id"]][row["kind"]] = bool(row["dead"])
        return found

    async def history(self, order_id: str) -> Sequence[Row]:
        """Return the rows of an order's history, oldest first. `at` is in seconds since 1970."""
        return await self._report(statements.HISTORY, order_id=order_id)

    async def announce(self) -> None:
        """Record that this replica is alive. Increase the protocol number once no older release is running."""
        texts = (statements.ANNOUNCE, statements.FORGET_REPLICAS, statements.RAISE_PROTOCOL)
        await self._database.write(*(self._statement(text) for text in texts))

    async def mismatches(self) -> Sequence[Row]:
        """Return the rows of the mismatches that reconciliation has recorded, oldest first."""
        return await self._report(statements.LIST_MISMATCHES, limit=MAX_OPEN_MISMATCHES)

    async def record_mismatches(self, found: Sequence[object], agreed: Sequence[object]) -> None:
        """Record the new mismatches in `found`, and delete the mismatches in `agreed`, whose records now agree."""
        await self._database.write(
            self._statement(statements.RECORD_MISMATCHES, found), self._statement(statements.DELETE_MISMATCHES, agreed)
        )

    async def accept_mismatch(self, order_id: str, kind: str, accepted: str) -> bool:
        """Record who accepts a mismatch and why. Return False if reconciliation has recorded no such mismatch."""
        values = {"order_id": order_id, "kind": kind, "accepted": accepted}
        return bool((await self._database.write(self._statement(statements.ACCEPT_MISMATCH, **values)))[0])

    async def check(self) -> None:
        """Raise JournalUnavailable if the journal can't be read or has an unsupported protocol number."""
        (row,) = await self._read(statements.PROTOCOL)
        number = row["number"]
        if number not in (self._protocol - 1, self._protocol):
            known = f"{self._protocol - 1} and {self._protocol}"
            log.error("the journal needs another release, see CHANGELOG.md", protocol=number, known=known)
            raise JournalUnavailable(f"the journal has protocol number {number}, but this release knows only {known}")

    async def _claim(self, name: str, limit: int, *then: str, failed: bool) -> Sequence[Row]:
        """Claim and return up to `limit` due rows of a queue. Run the `then` statements in the same transaction."""
        if self._reading_due is None:
            self._reading_due = asyncio.create_task(self._read_due_queues(), name="read what is due")
        if (name, failed) not in await shared_result(self._reading_due):
            return []
        queue = statements.QUEUES[name, failed]
        with suppress(JournalUnavailable):  # if invalid due times can't be corrected, other rows can still be claimed
            await self._database.write(self._statement(queue.correct))

        async def claim(limit: int, passed: int) -> Sequence[Row]:
            values: dict[str, Any] = {"state": name, "limit": limit, "passed": passed, "new_owner": new_owner()}
            texts = (queue.claim, *then)
            claimed, *_ = await self._database.write(*(self._statement(text, **values) for text in texts))
            return claimed

        return await self._heads[name, failed].take(claim, limit)

    async def _read_due_queues(self) -> set[tuple[str, bool]]:
        """Return the queues with due work, as pairs (order state or item kind, whether the work has failed before)."""
        self._reading_due = None  # a claim shares only a read that starts after it, so it misses nothing
        return {(row["queue"], bool(row["failed"])) for row in await self._read(statements.DUE_QUEUES)}

    async def _set_done(self, items: Sequence[object], *before: str) -> list[str]:
        """Lock the items' orders, run the statements `before`, then mark orders without outbox items as DONE.

        Return the ids of the DONE orders. Skip items that the database rejects: sending them again later is harmless.
        """
        texts = (statements.LOCK_ORDERS, *before, statements.SET_DONE, statements.DONE_EVENTS)
        try:
            *_, done, _ = await self._database.write(*(self._statement(text, items) for text in texts))
        except JournalUnavailable as error:
            if not is_rejected(error):
                raise
            alone = [[item] for item in items] if len(items) > 1 else []
            return [order_id for item in alone for order_id in await self._set_done(item, *before)]
        return [row["order_id"] for row in done]

    def _events(self, held: Entry, *steps: tuple[str, str]) -> Statement:
        """Return the statement that adds steps to an order's history if the order has this claim and state."""
        items = [{"step": step, "detail": detail, "place": place} for place, (step, detail) in enumerate(steps)]
        return self._statement(statements.EVENTS, items, **rows.claim_to_row(held), state=held.state)

    async def _read(self, text: str, items: Sequence[object] | None = None, **values: Any) -> Sequence[Row]:
        return await self._database.read(*self._statement(text, items, **values))

    async def _report(self, text: str, items: Sequence[object] | None = None, **values: Any) -> Sequence[Row]:
        return await self._database.report(*self._statement(text, items, **values))

    async def _list(self, text: str, items: Sequence[object] | None = None, **values: Any) -> list[Entry]:
        return list(map(rows.entry_from_row, await self._report(text, items, **values)))

    def _statement(self, text: str, items: Sequence[object] | None = None, **values: Any) -> Statement:
        return text, values | self._constants | ({} if items is None else {"items": listed(items)})


def _list_of(state: State) -> str:
    """Return the statement that lists a state's orders, using the index that covers the state."""
    if state is State.DONE:
        return statements.LIST_DONE
    return statements.LIST_NOT_PLACED if state in RELEASED_CART | {State.SETTLED} else statements.LIST_ACTIVE
