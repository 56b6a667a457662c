"""The journal in SQL, over a database that runs statements: SQLite or PostgreSQL."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Protocol

from checkout_service import rows, statements
from checkout_service.domain import State
from checkout_service.journal import (
    LEASE_SECONDS,
    OUTBOX_LEASE_SECONDS,
    REPLAY_SECONDS,
    STUCK_SECONDS,
    Entry,
    Event,
    NewOrder,
    OutboxItem,
    Sent,
    Statistics,
)
from checkout_service.rows import Row
from checkout_service.saga import Update

Statement = tuple[str, Sequence[Any]]


class Database(Protocol):
    """Runs SQL. Both methods raise JournalUnavailable.

    Attributes:
        now: an SQL expression, the database's clock in seconds since 1970.
        skip_locked: what ends a SELECT whose rows no other transaction may take meanwhile.
    """

    now: str
    skip_locked: str

    async def write(self, *batch: Statement) -> list[list[Row]]:
        """Run statements in one transaction; returns the rows of each when they are on disk."""

    async def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query."""


class SqlJournal:
    """See `journal.Journal`.

    Args:
        database: has the tables of `migrations`.
        worker: names this replica in leases and histories.
        lease_seconds: how long an order is left to the worker that serves its caller.
    """

    def __init__(self, database: Database, worker: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._sql = cache(self._render)

    async def find(self, scope: str) -> Entry | None:
        """Look an order up by its scope."""
        return rows.first(await self._read(statements.FIND, (scope,)))

    async def find_recent(self, fingerprint: str) -> Entry | None:
        """Look the newest order of the last hour up that was placed, or may be, by the same request."""
        return rows.first(await self._read(statements.FIND_RECENT, (fingerprint,)))

    async def read(self, order_id: str) -> Entry | None:
        """Look an order up by its id."""
        return rows.first(await self._read(statements.READ, (order_id,)))

    async def insert(self, new: NewOrder) -> Entry | None:
        """Write a new order down as CHARGING, leased. None, or the other order that has its scope."""
        order = new.order
        event = ("inserted", self._worker, order.order_id, 1, State.CHARGING)
        inserted, _ = await self._write((statements.INSERT, rows.new_row(new, self._worker)), (statements.EVENT, event))
        if inserted:
            return None
        holder = await self.find(new.scope)
        # After a lost connection the statement was repeated: then the holder may be this order.
        return holder if holder is None or holder.order_id != order.order_id else None

    async def take_over(self, seen: Entry) -> Entry | None:
        """Take an order whose lease ran out, or reopen an abandoned one with a new attempt; None: it changed."""
        step = "reopened" if seen.state is State.ABANDONED else "taken_over"
        event = (step, self._worker, seen.order_id, seen.epoch + 1, State.CHARGING)
        taken, _ = await self._write(
            (statements.TAKE_OVER, (self._worker, seen.order_id, seen.epoch, seen.state)), (statements.EVENT, event)
        )
        return rows.first(taken)

    async def claim_expired(self, limit: int) -> list[Entry]:
        """Take up to `limit` open orders whose lease ran out, counting a failure until they change state."""
        claimed, _ = await self._write(
            (statements.CLAIM_EXPIRED, (limit, self._worker)), (statements.CLAIM_EVENTS, (self._worker,))
        )
        return [rows.entry(row) for row in claimed]

    async def update(self, order_id: str, epoch: int, change: Update, answer: bytes | None) -> bool:
        """Change the order's state if its state and epoch are as expected; with SHIPPED its outbox is filled."""
        where = (order_id, epoch, change.before)
        reason = change.refusal.reason if change.refusal else ""
        values = (change.after, answer, change.tracking_id, change.transaction_id, rows.dump(change.refusal), reason)
        batch: list[Statement] = [(statements.UPDATE, (*values, *where))]
        steps = rows.steps(change)
        events = statements.EVENT if len(steps) == 1 else statements.TWO_EVENTS
        batch.append((events, (*(text for step in steps for text in step), order_id, epoch, change.after)))
        if change.after is State.SHIPPED:
            batch.append((statements.FILL_OUTBOX, (order_id, epoch)))
        if (await self._write(*batch))[0]:
            return True
        # After a lost connection the statement was repeated: only this worker writes with this epoch.
        found = await self.read(order_id)
        return found is not None and found.epoch == epoch and found.state is change.after

    async def release(self, order_id: str, epoch: int, *, delay_seconds: float, reason: str) -> None:
        """End the lease after a delay, unless another worker has the order."""
        events: list[Statement] = [
            (statements.EVENT, ("left", reason, order_id, epoch, state)) for state in (State.CHARGING, State.VOIDING)
        ]
        await self._write((statements.RELEASE, (delay_seconds, reason, order_id, epoch)), *events)

    async def release_own(self) -> None:
        """End the leases that an earlier life of this worker left."""
        await self._write((statements.RELEASE_OWN, (self._worker,)))

    async def claim_outbox(self, limit: int) -> list[OutboxItem]:
        """Take up to `limit` outbox items that are due."""
        (claimed,) = await self._write((statements.CLAIM_OUTBOX, (limit,)))
        if not claimed:
            return []
        orders = {entry.order_id: entry for entry in await self._read_many({row[0] for row in claimed})}
        return [OutboxItem(kind, failures, orders[order_id]) for order_id, kind, failures in claimed]

    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        """Make an item due later."""
        await self._write((statements.POSTPONE, (delay_seconds, reason, item.order.order_id, item.kind)))

    async def settle(self, sent: Collection[Sent]) -> list[str]:
        """Drop finished outbox items; returns the ids of the orders that are DONE by it."""
        order_ids = sorted({item.order_id for item in sent})
        marks, pairs = _marks(len(order_ids)), _pairs(len(sent))
        _, _, done, _ = await self._write(
            (statements.DROP_SENT.replace("{pairs}", pairs), [v for item in sent for v in (item.order_id, item.kind)]),
            (statements.SENT_EVENTS.replace("{pairs}", pairs), [v for i in sent for v in (i.order_id, i.step)]),
            (statements.SET_DONE.replace("{marks}", marks), order_ids),
            (statements.DONE_EVENTS.replace("{marks}", marks), order_ids),
        )
        return [row[0] for row in done]

    async def statistics(self) -> Statistics:
        """Count what is not finished."""
        counts = await self._read(statements.COUNT_ACTIVE)
        ((backlog,),) = await self._read(statements.COUNT_OUTBOX)
        oldest = max((age for state, _, age in counts if state != State.NEEDS_REFUND), default=0.0)
        return Statistics({State(state): count for state, count, _ in counts}, max(oldest, 0.0), backlog)

    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        """List orders, newest first; stuck ones oldest first."""
        conditions = ["TRUE"]
        if states:
            conditions.append(f"state IN ({_marks(len(states))})")
        if stuck:
            conditions.append("{stuck}")
        sql = statements.LIST.replace("{condition}", " AND ".join(conditions))
        found = await self._read(sql.replace("{direction}", "ASC" if stuck else "DESC"), (*states, limit))
        return [rows.entry(row) for row in found]

    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        """Tell the kinds that are left in each order's outbox."""
        found: dict[str, list[str]] = {order_id: [] for order_id in order_ids}
        if order_ids:
            sql = statements.OUTBOX_OF.replace("{marks}", _marks(len(order_ids)))
            for order_id, kind in await self._read(sql, order_ids):
                found[order_id].append(kind)
        return found

    async def history(self, order_id: str) -> list[Event]:
        """Tell an order's history, oldest first."""
        found = await self._read(statements.HISTORY, (order_id,))
        return [Event(at, step, State(state), *rest) for at, step, state, *rest in found]

    async def check(self) -> None:
        """Return if the journal answers."""
        await self._read(statements.CHECK)

    async def _read_many(self, order_ids: Collection[str]) -> list[Entry]:
        sql = statements.READ_MANY.replace("{marks}", _marks(len(order_ids)))
        return [rows.entry(row) for row in await self._read(sql, sorted(order_ids))]

    async def _write(self, *batch: Statement) -> list[list[Row]]:
        return await self._database.write(*((self._sql(sql), parameters) for sql, parameters in batch))

    async def _read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return await self._database.read(self._sql(sql), parameters)

    def _render(self, sql: str) -> str:
        texts = {
            "entry": statements.ENTRY_COLUMNS,
            "stuck": statements.STUCK,
            "stuck_seconds": str(STUCK_SECONDS),
            "lease_seconds": str(self._lease_seconds),
            "recovery_lease_seconds": str(2 * self._lease_seconds),
            "outbox_lease_seconds": str(OUTBOX_LEASE_SECONDS),
            "replay_seconds": str(REPLAY_SECONDS),
            "skip_locked": self._database.skip_locked,
            "now": self._database.now,
        }
        for name, text in texts.items():
            sql = sql.replace(f"{{{name}}}", text)
        return sql


def _marks(count: int) -> str:
    return ", ".join(["?"] * count)


def _pairs(count: int) -> str:
    return ", ".join(["(?, ?)"] * count)
