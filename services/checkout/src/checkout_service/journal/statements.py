"""The journal's SQL, common to SQLite and PostgreSQL; `database.Dialect` renders it.

`:name` is a parameter. A field in braces is a fragment, or one of these, which differ between the databases:

    {now}          the database's clock, in seconds since 1970
    {skip_locked}  makes a SELECT skip rows that a concurrent transaction has selected
    {tries}        whether earlier attempts have failed: a part of the conditions of partial indexes
    {items}        the elements of the JSON array in the parameter `items`, as rows with the column `value`

Within a transaction, an INSERT that depends on the UPDATE before it looks for the state that the UPDATE wrote.
"""

from dataclasses import dataclass

FRAGMENTS = {
    # Conditions of partial indexes, which a query must repeat word for word: unfinished orders, and those among them
    # that recovery continues.
    "active": "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND')",
    "open": "state IN ('CHARGING', 'VOIDING')",
    # The clock may have been set back: a time further ahead than any worker sets it has no meaning.
    "leased": "(lease_until > {now} AND lease_until <= {now} + :max_ahead_seconds)",
    "unchanged": "(updated_at < {now} - :stuck_seconds OR updated_at > {now} + :stuck_seconds)",
    "stuck": "({active} AND (state = 'NEEDS_REFUND' OR {unchanged}))",
    "entry": """
        order_id, fingerprint, user_id, email, cart_etag, state, attempt, epoch, {leased} AS leased,
        failures, reason, refusal, tracking_id, traceparent, created_at, updated_at, {stuck} AS stuck, snapshot
    """,
}

FIND = "SELECT {entry} FROM orders WHERE scope = :scope"

FIND_RECENT = """
    SELECT {entry} FROM orders
    WHERE fingerprint = :fingerprint AND state IN ('CHARGING', 'SHIPPED', 'DONE')
        AND created_at > {now} - :replay_seconds
    ORDER BY order_id DESC LIMIT 1
"""

READ = "SELECT {entry} FROM orders WHERE order_id = :order_id"

READ_MANY = "SELECT {entry} FROM orders WHERE order_id IN (SELECT value->>'order_id' FROM {items})"

INSERT = """
    INSERT INTO orders (
        order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, worker,
        traceparent, snapshot, state, attempt, epoch, lease_until, failures, reason, refusal, transaction_id,
        tracking_id, created_at, updated_at
    ) VALUES (
        :order_id, :scope, :fingerprint, :user_id, :email, :cart_etag, :currency_code, :total_units, :total_nanos,
        :worker, :traceparent, :snapshot, 'CHARGING', 1, 1, {now} + :lease_seconds, 0, '', '', '', '', {now}, {now}
    ) ON CONFLICT (scope) DO NOTHING RETURNING order_id
"""

# Steps of one transaction are a microsecond apart, by their place, so that the history has them in order.
EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, value->>'step', {now} + 0.000001 * CAST(value->>'place' AS INTEGER), state, attempt,
        value->>'detail'
    FROM orders CROSS JOIN {items}
    WHERE order_id = :order_id AND epoch = :epoch AND state = :state
    ON CONFLICT DO NOTHING
"""

TAKE_OVER = """
    UPDATE orders SET
        epoch = epoch + 1, worker = :worker, lease_until = {now} + :lease_seconds, updated_at = {now},
        state = 'CHARGING', attempt = CASE WHEN state = 'ABANDONED' THEN attempt + 1 ELSE attempt END
    WHERE order_id = :order_id AND epoch = :epoch AND state = :state AND (state = 'ABANDONED' OR NOT {leased})
    RETURNING {entry}
"""

_CORRECT_LEASES = """
    UPDATE orders SET lease_until = {now}
    WHERE {open} AND state = :state AND {tries} AND lease_until > {now} + :max_ahead_seconds
"""

# A worker may die of an order each time, so its next attempt is scheduled before this one, with a growing delay.
_CLAIM_EXPIRED = """
    WITH due AS MATERIALIZED (
        SELECT order_id FROM orders
        WHERE {open} AND state = :state AND {tries} AND lease_until <= {now}
        ORDER BY lease_until LIMIT :limit {skip_locked}
    )
    UPDATE orders SET
        epoch = epoch + 1, worker = :worker, failures = failures + 1,
        lease_until = {now} + :recovery_lease_seconds * CASE WHEN failures < 4 THEN 1 ELSE 10 END
    WHERE order_id IN (SELECT order_id FROM due)
    RETURNING {entry}
"""

# The orders that the statement before has claimed have the longest leases.
CLAIM_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'taken_over', {now}, state, attempt, worker
    FROM orders
    WHERE {open} AND state = :state AND failures > 0 AND lease_until > {now} + :recovery_lease_seconds / 2
        AND worker = :worker
    ON CONFLICT DO NOTHING
"""

_CORRECT_DUE_TIMES = """
    UPDATE outbox SET due_at = {now}
    WHERE dead_at IS NULL AND kind = :kind AND {tries} AND due_at > {now} + :max_ahead_seconds
"""

_CLAIM_OUTBOX = """
    WITH due AS MATERIALIZED (
        SELECT order_id, kind FROM outbox
        WHERE dead_at IS NULL AND kind = :kind AND {tries} AND due_at <= {now}
        ORDER BY due_at LIMIT :limit {skip_locked}
    )
    UPDATE outbox SET failures = failures + 1, due_at = {now} + :recovery_lease_seconds
    WHERE (order_id, kind) IN (SELECT order_id, kind FROM due)
    RETURNING order_id, kind, failures
"""


@dataclass(frozen=True, slots=True)
class Claims:
    """The statements that claim orders and outbox items."""

    correct_leases: str
    claim_expired: str
    correct_due_times: str
    claim_outbox: str


def _claims(tries: str) -> Claims:
    texts = (_CORRECT_LEASES, _CLAIM_EXPIRED, _CORRECT_DUE_TIMES, _CLAIM_OUTBOX)
    return Claims(*(text.replace("{tries}", tries) for text in texts))


NEW = _claims("failures = 0")
FAILED = _claims("failures > 0")

UPDATE = """
    UPDATE orders SET
        state = :after, tracking_id = :tracking_id, reason = :reason,
        transaction_id = COALESCE(NULLIF(CAST(:transaction_id AS TEXT), ''), transaction_id),
        refusal = COALESCE(NULLIF(CAST(:refusal AS TEXT), ''), refusal),
        failures = 0, updated_at = {now}, lease_until = {now} + :lease_seconds
    WHERE order_id = :order_id AND epoch = :epoch AND state = :before
    RETURNING order_id
"""

FILL_OUTBOX = """
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, kind, {now} + :outbox_lease_seconds, 0, ''
    FROM orders CROSS JOIN (SELECT 'email' AS kind UNION ALL SELECT 'empty_cart') AS kinds
    WHERE order_id = :order_id AND epoch = :epoch AND state = 'SHIPPED'
    ON CONFLICT DO NOTHING
"""

RELEASE = """
    UPDATE orders SET lease_until = {now} + :delay_seconds, reason = :reason
    WHERE order_id = :order_id AND epoch = :epoch AND {open}
"""

RELEASE_EVENT = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'left', {now}, state, attempt, reason
    FROM orders WHERE order_id = :order_id AND epoch = :epoch AND {open}
    ON CONFLICT DO NOTHING
"""

RELEASE_OWN = "UPDATE orders SET lease_until = 0 WHERE {open} AND worker = :worker"

POSTPONE = """
    UPDATE outbox SET due_at = {now} + :delay_seconds, failures = :failures, reason = :reason
    WHERE order_id = :order_id AND kind = :kind
"""

SET_DEAD = """
    UPDATE outbox SET dead_at = {now}, reason = :reason WHERE order_id = :order_id AND kind = :kind
"""

NOTIFICATION_EVENT = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, :step, {now}, state, attempt, :reason FROM orders
    WHERE order_id = :order_id AND EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    ON CONFLICT (order_id, epoch, step) DO UPDATE SET at = excluded.at, detail = excluded.detail
"""

REQUEUE = """
    UPDATE outbox SET dead_at = NULL, failures = 0, due_at = {now}
    WHERE order_id = :order_id AND dead_at IS NOT NULL
    RETURNING kind
"""

DELETE_SENT = """
    DELETE FROM outbox WHERE (order_id, kind) IN (SELECT value->>'order_id', value->>'kind' FROM {items})
"""

SENT_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, value->>'step', {now}, state, attempt, ''
    FROM {items} JOIN orders ON order_id = value->>'order_id'
    WHERE TRUE ON CONFLICT DO NOTHING
"""

SET_DONE = """
    UPDATE orders SET state = 'DONE', updated_at = {now}
    WHERE order_id IN (SELECT value->>'order_id' FROM {items}) AND state = 'SHIPPED'
        AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    RETURNING order_id
"""

DONE_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'done', {now} + 0.000001, state, attempt, ''
    FROM orders WHERE order_id IN (SELECT value->>'order_id' FROM {items}) AND state = 'DONE'
    ON CONFLICT DO NOTHING
"""

OUTBOX_OF = """
    SELECT order_id, kind, dead_at IS NOT NULL AS dead FROM outbox
    WHERE order_id IN (SELECT value->>'order_id' FROM {items}) ORDER BY order_id, kind
"""

COUNT_ACTIVE = """
    SELECT state, count(*) AS orders, {now} - min(updated_at) AS age FROM orders WHERE {active} GROUP BY state
"""

COUNT_OUTBOX = "SELECT count(*) AS items FROM outbox"

COUNT_DEAD = "SELECT kind, count(*) AS items FROM outbox WHERE dead_at IS NOT NULL GROUP BY kind"

COUNT_FUTURE = """
    SELECT count(*) AS orders
    FROM (SELECT 1 FROM orders WHERE created_at > {now} + :stuck_seconds LIMIT :limit) AS ahead
"""

LIST = "SELECT {entry} FROM orders ORDER BY created_at DESC, order_id DESC LIMIT :limit"

LIST_STATE = """
    SELECT {entry} FROM orders WHERE state = :state ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

LIST_STUCK = """
    SELECT {entry} FROM orders
    WHERE {active} AND state IN (SELECT value->>'state' FROM {items}) AND {stuck}
    ORDER BY created_at, order_id LIMIT :limit
"""

HISTORY = """
    SELECT at, step, state, attempt, epoch, detail FROM order_events WHERE order_id = :order_id ORDER BY at, epoch
"""

CHECK = "SELECT 1 FROM orders WHERE order_id = ''"
