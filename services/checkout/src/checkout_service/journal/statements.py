# ruff: noqa: S608 - the SQL is built only from constants
"""The journal's SQL statements, which run on both SQLite and PostgreSQL: see `chassis.sql.database`.

`{_NAME}` is a fragment from this module, `{NOW}` is the database's current Unix time, and `:name` is a parameter.
"""

from dataclasses import dataclass

from chassis.sql.database import NOW
from checkout_service.domain import OPEN
from checkout_service.ports import OUTBOX_KINDS

# The conditions of partial indexes. A database uses such an index only if the query repeats its condition verbatim.
# _ACTIVE orders are unfinished, and recovery continues the _OPEN orders.
_ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SETTLING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
_OPEN = "state IN ('CHARGING', 'VOIDING', 'SETTLING')"
_NOT_PLACED = "state IN ('DECLINED', 'VOIDED', 'ABANDONED', 'SETTLED')"

# Matches orders whose cart can't be ordered again. A unique partial index has the same condition.
_LIVE_CART = """
    cart_etag <> ''
    AND state IN ('CHARGING', 'VOIDING', 'SETTLING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')
"""


def _generation(etag: str) -> str:
    """Return SQL for a cart's generation. Older releases, if still running, store the etag, which begins with it."""
    return f"CASE WHEN length({etag}) = 32 THEN substr({etag}, 1, 16) ELSE {etag} END"


_SAME_CART = f"{_generation('cart_etag')} = {_generation('CAST(:cart_etag AS TEXT)')}"

# False once a newer release has increased the protocol number beyond the one that this release supports.
_KNOWN = "(SELECT number FROM protocol) <= :protocol"

# Workers never set a time later than this. If a stored time is later, the clock has been set back, so ignore the time.
_LATEST = f"{NOW} + :max_ahead_seconds"
_LEASED = f"(lease_until > {NOW} AND lease_until <= {_LATEST})"
_UNCHANGED = f"(updated_at < {NOW} - :stuck_seconds OR updated_at > {NOW} + :stuck_seconds)"
_STUCK = f"({_ACTIVE} AND (state IN ('NEEDS_REFUND', 'NEEDS_REVIEW') OR {_UNCHANGED}))"
_FINISHED = "state IN ('DONE', 'DECLINED', 'VOIDED', 'ABANDONED', 'SETTLED')"

# True only if the worker still holds the order.
_HELD = "order_id = :order_id AND attempt = :attempt AND epoch = :epoch AND owner = :owner"

_IS_IN_OUTBOX = "EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)"

_LISTED = "order_id IN (SELECT value->>'order_id' FROM json_each(:items))"

_ENTRY = f"""
    order_id, scope, fingerprint, user_id, email, cart_etag, state, attempt, epoch, owner, {_LEASED} AS leased,
    failures, reason, refusal, transaction_id, tracking_id, traceparent, created_at, updated_at, {_STUCK} AS stuck,
    currency_code, total_units, total_nanos, snapshot
"""
_ITEM = "order_id, kind"


def _events(step: str, source: str, *, at: str = NOW, detail: str = "''", conflict: str = "DO NOTHING") -> str:
    """Return a statement that adds a step to orders' histories. `conflict` is its ON CONFLICT action."""
    return f"""
        INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
        SELECT order_id, epoch, {step}, {at}, state, attempt, {detail} FROM {source}
        ON CONFLICT {conflict}
    """


def _newest(condition: str) -> str:
    return f"SELECT {_ENTRY} FROM orders WHERE {condition} ORDER BY created_at DESC, order_id DESC LIMIT :limit"


def _oldest(condition: str) -> str:
    return f"SELECT {_ENTRY} FROM orders WHERE {condition} ORDER BY created_at, order_id LIMIT :limit"


FIND = f"SELECT {_ENTRY} FROM orders WHERE scope = :scope"

FIND_OF_CART = f"SELECT {_ENTRY} FROM orders WHERE user_id = :user_id AND {_SAME_CART} AND {_LIVE_CART}"

READ = f"SELECT {_ENTRY} FROM orders WHERE order_id = :order_id"

READ_MANY = f"SELECT {_ENTRY} FROM orders WHERE {_LISTED}"

INSERT = f"""
    INSERT INTO orders (
        order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, worker,
        traceparent, snapshot, state, attempt, epoch, owner, lease_until, failures, reason, refusal, transaction_id,
        tracking_id, created_at, updated_at
    ) SELECT
        :order_id, :scope, :fingerprint, :user_id, :email, :cart_etag, :currency_code, :total_units, :total_nanos,
        :worker, :traceparent, :snapshot, 'CHARGING', :attempt, :epoch, :owner, {NOW} + :lease_seconds, 0, '', '', '',
        '', {NOW}, {NOW}
    WHERE {_KNOWN} ON CONFLICT DO NOTHING RETURNING order_id, epoch, state, attempt
"""

# Date the steps of one transaction a microsecond apart, so that the history lists them in sequence.
EVENTS = _events(
    "value->>'step'",
    f"orders CROSS JOIN json_each(:items) WHERE {_HELD} AND state = :state",
    at=f"{NOW} + 0.000001 * CAST(value->>'place' AS INTEGER)",
    detail="value->>'detail'",
)

_NEW_OWNER = "epoch = epoch + 1, owner = :new_owner, worker = :worker"
_NEW_LEASE = f"{_NEW_OWNER}, lease_until = {NOW} + :lease_seconds, updated_at = {NOW}"

TAKE_OVER = f"""
    UPDATE orders SET {_NEW_LEASE}
    WHERE {_HELD} AND state = 'CHARGING' AND NOT {_LEASED} AND {_KNOWN}
    RETURNING {_ENTRY}
"""

# NOT EXISTS avoids violating the unique index: on SQLite, a violation would roll back the transaction's other orders.
REOPEN = f"""
    UPDATE orders SET
        {_NEW_LEASE}, state = 'CHARGING', attempt = attempt + 1, failures = 0, reason = '', refusal = '',
        fingerprint = :fingerprint, email = :email, cart_etag = :cart_etag, currency_code = :currency_code,
        total_units = :total_units, total_nanos = :total_nanos, traceparent = :traceparent, snapshot = :snapshot
    WHERE {_HELD} AND state IN ('ABANDONED', 'DECLINED', 'VOIDED') AND NOT EXISTS (
        SELECT 1 FROM orders AS holder
        WHERE holder.user_id = :user_id AND {_SAME_CART} AND {_LIVE_CART}
    ) AND {_KNOWN}
    RETURNING {_ENTRY}
"""


@dataclass(frozen=True, slots=True)
class Queue:
    """The SQL for a queue of orders in one state or outbox items of one kind: either new ones or ones that have failed.

    Attributes:
        is_due: a condition that is true if the queue has rows to claim or correct.
        correct: makes rows due now if their due time is later than any worker could have set.
        claim: claims up to :limit due rows, and returns them.
    """

    is_due: str
    correct: str
    claim: str


def _queue(table: str, key: str, time: str, rows: str, columns: str, *, owner: str = "") -> Queue:
    """Return the SQL for a queue: the rows of `table` that match `rows`. The column `time` holds due times."""
    return Queue(
        f"""
            (SELECT min({time}) FROM {table} WHERE {rows}) <= {NOW}
            OR (SELECT max({time}) FROM {table} WHERE {rows}) > {_LATEST}
        """,
        f"UPDATE {table} SET {time} = {NOW} WHERE {rows} AND {time} > {_LATEST}",
        # A row may crash every worker that claims it, so claiming it also schedules the next try, with a growing delay.
        f"""
            WITH due AS MATERIALIZED (
                SELECT {key} FROM {table} WHERE {rows} AND {time} <= {NOW}
                ORDER BY {time} LIMIT :limit OFFSET :passed FOR UPDATE SKIP LOCKED
            )
            UPDATE {table} SET
                {owner}failures = failures + 1,
                {time} = {NOW} + :recovery_lease_seconds * CASE WHEN failures < 4 THEN 1 ELSE 10 END
            WHERE ({key}) IN (SELECT {key} FROM due)
            RETURNING {columns}
        """,
    )


_TRIES = ((False, "failures = 0"), (True, "failures > 0"))
# Maps (order state or item kind, whether the rows have failed before) to the queue.
QUEUES: dict[tuple[str, bool], Queue] = {
    (state, failed): _queue(
        "orders",
        "order_id",
        "lease_until",
        f"{_OPEN} AND state = '{state}' AND {tries}",
        _ENTRY,
        owner=f"{_NEW_OWNER}, ",
    )
    for state in OPEN
    for failed, tries in _TRIES
} | {
    (kind, failed): _queue(
        "outbox", _ITEM, "due_at", f"dead_at IS NULL AND kind = '{kind}' AND {tries}", f"{_ITEM}, failures"
    )
    for kind in OUTBOX_KINDS
    for failed, tries in _TRIES
}

# Workers claim only if this query finds due work, because SQLite runs only one write transaction at a time.
DUE_QUEUES = " UNION ALL ".join(
    f"SELECT '{name}' AS queue, {int(failed)} AS failed WHERE {_KNOWN} AND ({queue.is_due})"
    for (name, failed), queue in QUEUES.items()
)

# Orders that were just claimed have the longest leases, so the index on lease times finds them quickly.
_LATE = f"lease_until > {NOW} + :recovery_lease_seconds / 2"
_JUST_CLAIMED = f"{_OPEN} AND state = :state AND failures > 0 AND {_LATE} AND owner = :new_owner"
CLAIM_EVENTS = _events("'taken_over'", f"orders WHERE {_JUST_CLAIMED}", detail="worker")

UPDATE = f"""
    UPDATE orders SET
        state = :after, tracking_id = :tracking_id, reason = :reason, refusal = :refusal, owner = :new_owner,
        transaction_id = COALESCE(NULLIF(CAST(:transaction_id AS TEXT), ''), transaction_id),
        attempt = :new_attempt, epoch = :new_epoch,
        failures = 0, updated_at = {NOW}, lease_until = {NOW} + :lease_seconds
    WHERE {_HELD} AND state = :before
    RETURNING order_id, epoch, state, attempt
"""

FILL_OUTBOX = f"""
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, kind, {NOW} + :outbox_lease_seconds, 0, ''
    FROM orders CROSS JOIN (SELECT 'email' AS kind UNION ALL SELECT 'empty_cart') AS kinds
    WHERE {_HELD} AND state = :state
    ON CONFLICT DO NOTHING
"""

DELETE_OUTBOX = f"DELETE FROM outbox WHERE order_id IN (SELECT order_id FROM orders WHERE {_HELD} AND state = :state)"

RELEASE = f"UPDATE orders SET lease_until = {NOW} + :delay_seconds, reason = :reason WHERE {_HELD} AND {_OPEN}"

RELEASE_EVENT = _events("'left'", f"orders WHERE {_HELD} AND {_OPEN}", detail="reason")

RELEASE_OWN = f"UPDATE orders SET lease_until = 0 WHERE {_ACTIVE} AND {_OPEN} AND worker = :worker"

POSTPONE = f"""
    UPDATE outbox SET due_at = {NOW} + :delay_seconds, failures = :failures, reason = :reason
    WHERE order_id = :order_id AND kind = :kind
"""

SET_DEAD = f"UPDATE outbox SET dead_at = {NOW}, reason = :reason WHERE order_id = :order_id AND kind = :kind"

NOTIFICATION_EVENT = _events(
    ":step",
    f"orders WHERE order_id = :order_id AND {_IS_IN_OUTBOX}",
    detail=":reason",
    conflict="(order_id, epoch, step) DO UPDATE SET at = excluded.at, detail = excluded.detail",
)

REQUEUE = f"""
    UPDATE outbox SET dead_at = NULL, failures = 0, due_at = {NOW}
    WHERE order_id = :order_id AND dead_at IS NOT NULL
    RETURNING kind
"""

# Changes `failures`, so that completing an earlier confirmation keeps the item. The number is low: it may fail again.
REQUEUE_OR_CONFIRM = f"""
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, 'email', {NOW}, 0, '' FROM orders WHERE order_id = :order_id AND state IN ('SHIPPED', 'DONE')
    ON CONFLICT (order_id, kind) DO UPDATE SET
        dead_at = NULL, failures = outbox.failures % 10 + 1, due_at = excluded.due_at
    RETURNING kind
"""

# Two replicas may complete an order's two items at the same time. Without the lock, each replica would still see the
# item that the other replica deletes, and the order would remain SHIPPED.
LOCK_ORDERS = f"SELECT order_id FROM orders WHERE {_LISTED} ORDER BY order_id FOR UPDATE"

DELETE_SENT = f"""
    DELETE FROM outbox
    WHERE {_LISTED} AND (order_id, kind, failures) IN (
        SELECT value->>'order_id', value->>'kind', CAST(value->>'failures' AS INTEGER) FROM json_each(:items)
    )
"""

SENT_EVENTS = _events(
    "value->>'step'", f"json_each(:items) JOIN orders ON order_id = value->>'order_id' WHERE {_LISTED}"
)

SET_DONE = f"""
    UPDATE orders SET state = 'DONE', updated_at = {NOW}
    WHERE {_LISTED} AND state = 'SHIPPED' AND NOT {_IS_IN_OUTBOX}
    RETURNING order_id
"""

DONE_EVENTS = _events("'done'", f"orders WHERE {_LISTED} AND state = 'DONE'", at=f"{NOW} + 0.000001")

COMPLETE = f"SELECT order_id FROM orders WHERE {_ACTIVE} AND state = 'SHIPPED' AND NOT {_IS_IN_OUTBOX} LIMIT :limit"

OLD = f"""
    SELECT order_id, CASE WHEN updated_at > created_at THEN updated_at ELSE created_at END AS at FROM orders
    WHERE created_at < :older_than AND updated_at < :older_than AND {_FINISHED} AND NOT {_IS_IN_OUTBOX}
    ORDER BY created_at, order_id LIMIT :limit OFFSET :passed
"""

DELETE_ORDERS = f"""
    DELETE FROM orders
    WHERE {_LISTED} AND updated_at < :older_than AND {_FINISHED} AND NOT {_IS_IN_OUTBOX}
    RETURNING order_id
"""

DELETE_EVENTS = f"""
    DELETE FROM order_events
    WHERE {_LISTED} AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.order_id = order_events.order_id)
"""

PROTOCOL = "SELECT number FROM protocol"

ANNOUNCE = f"""
    INSERT INTO replicas (worker, protocol, seen_at) VALUES (:worker, :protocol, {NOW})
    ON CONFLICT (worker) DO UPDATE SET protocol = excluded.protocol, seen_at = excluded.seen_at
"""

FORGET_REPLICAS = f"DELETE FROM replicas WHERE seen_at < {NOW} - :replica_seconds"

RAISE_PROTOCOL = """
    UPDATE protocol SET number = :protocol
    WHERE number = :protocol - 1 AND NOT EXISTS (SELECT 1 FROM replicas WHERE protocol < :protocol)
"""

OUTBOX_OF = f"SELECT order_id, kind, dead_at IS NOT NULL AS dead FROM outbox WHERE {_LISTED} ORDER BY order_id, kind"

COUNT_ACTIVE = f"""
    SELECT state, count(*) AS orders, {NOW} - min(updated_at) AS age FROM orders WHERE {_ACTIVE} GROUP BY state
"""

COUNT_OUTBOX = "SELECT kind, count(*) AS items, count(dead_at) AS dead FROM outbox GROUP BY kind"

# A SHIPPED order's `updated_at` is when its outbox items were added.
OLDEST_NOTIFICATION = f"""
    SELECT {NOW} - updated_at AS age FROM orders
    WHERE {_ACTIVE} AND state = 'SHIPPED' AND EXISTS (
        SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id AND dead_at IS NULL
    )
    ORDER BY updated_at LIMIT 1
"""

COUNT_FUTURE = f"""
    SELECT count(*) AS orders
    FROM (SELECT 1 FROM orders WHERE created_at > {NOW} + :stuck_seconds LIMIT :limit) AS ahead
"""

LIST = _newest("true")

LIST_ACTIVE = _newest(f"{_ACTIVE} AND state = :state")

LIST_NOT_PLACED = _newest(f"{_NOT_PLACED} AND state = :state")

# Scans the index of all orders by creation time. Most orders are DONE, so a short scan finds enough of them.
LIST_DONE = _newest("state = 'DONE'")

# Uses the index on carts, which begins with the user id: a separate index on users would cost a write per order.
LIST_OF_USER = _newest(f"user_id = :user_id AND {_LIVE_CART}")

LIST_STUCK = _oldest(f"{_ACTIVE} AND state IN (SELECT value->>'state' FROM json_each(:items)) AND {_STUCK}")

LIST_DEAD = "SELECT order_id FROM outbox WHERE dead_at IS NOT NULL ORDER BY kind"

LIST_DONE_AMONG = _oldest(f"{_LISTED} AND state = 'DONE'")

SCAN = _oldest("(created_at, order_id) > (:at, :key)")

SETTLEMENTS = f"""
    SELECT order_id, step FROM order_events WHERE {_LISTED} AND step LIKE 'settled%' ORDER BY at, epoch
"""

HISTORY = """
    SELECT at, step, state, attempt, epoch, detail FROM order_events WHERE order_id = :order_id ORDER BY at, epoch
"""

LIST_MISMATCHES = "SELECT order_id, kind, since, accepted FROM mismatches ORDER BY since, order_id, kind LIMIT :limit"

RECORD_MISMATCHES = """
    INSERT INTO mismatches (order_id, kind, since, accepted)
    SELECT value->>'order_id', value->>'kind', CAST(value->>'since' AS DOUBLE PRECISION), ''
    FROM json_each(:items) WHERE true
    ON CONFLICT DO NOTHING
"""

ACCEPT_MISMATCH = (
    "UPDATE mismatches SET accepted = :accepted WHERE order_id = :order_id AND kind = :kind RETURNING kind"
)

DELETE_MISMATCHES = """
    DELETE FROM mismatches
    WHERE (order_id, kind) IN (SELECT value->>'order_id', value->>'kind' FROM json_each(:items))
"""
