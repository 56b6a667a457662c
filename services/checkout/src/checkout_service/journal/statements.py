"""The journal's SQL, common to SQLite and PostgreSQL; `database.Dialect` renders it.

`:name` is a parameter. A field in braces is a fragment, or one of these, which differ between the databases:

    {now}          the database's clock, in seconds since 1970
    {for_update}   makes a SELECT lock its rows, after concurrent transactions that have locked them
    {skip_locked}  makes a SELECT lock its rows, and skip those that a concurrent transaction has locked
    {tries}        whether earlier attempts have failed: a part of the conditions of partial indexes
    {queue}        a state of orders, or a kind of outbox items
    {items}        the elements of the JSON array in the parameter `items`, as rows with the column `value`
    {listed}       whether an element has the `order_id`
    {written}      the orders that the statement before has written or locked, so that PostgreSQL runs both as one
                   statement; on SQLite all orders, of which {of_claim} or {of_items} selects those
    {locked}       whether an element has the `order_id`, and the statement before has locked that order
"""

from dataclasses import dataclass

from checkout_service.domain import OPEN
from checkout_service.ports import OUTBOX_KINDS

FRAGMENTS = {
    # Conditions of partial indexes, which a query must repeat word for word: unfinished orders, and those among them
    # that recovery continues; orders that ended without an effect.
    "active": "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')",
    "open": "state IN ('CHARGING', 'VOIDING')",
    "released_cart": "state IN ('DECLINED', 'VOIDED', 'ABANDONED')",
    # Orders that hold their cart: the condition of a unique partial index.
    "live_cart": """
        cart_etag <> '' AND state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')
    """,
    # The clock may have been set back: a time further ahead than any worker sets it has no meaning.
    "leased": "(lease_until > {now} AND lease_until <= {now} + :max_ahead_seconds)",
    "unchanged": "(updated_at < {now} - :stuck_seconds OR updated_at > {now} + :stuck_seconds)",
    "stuck": "({active} AND (state IN ('NEEDS_REFUND', 'NEEDS_REVIEW') OR {unchanged}))",
    "finished": "state IN ('DONE', 'DECLINED', 'VOIDED', 'ABANDONED')",
    # Only the worker that holds the order finds it.
    "held": "order_id = :order_id AND attempt = :attempt AND epoch = :epoch AND owner = :owner",
    "entry": """
        order_id, scope, fingerprint, user_id, email, cart_etag, state, attempt, epoch, owner, {leased} AS leased,
        failures, reason, refusal, tracking_id, traceparent, created_at, updated_at, {stuck} AS stuck, snapshot
    """,
}

FIND = "SELECT {entry} FROM orders WHERE scope = :scope"

FIND_OF_CART = "SELECT {entry} FROM orders WHERE user_id = :user_id AND cart_etag = :cart_etag AND {live_cart}"

READ = "SELECT {entry} FROM orders WHERE order_id = :order_id"

READ_MANY = "SELECT {entry} FROM orders WHERE {listed}"

INSERT = """
    INSERT INTO orders (
        order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, worker,
        traceparent, snapshot, state, attempt, epoch, owner, lease_until, failures, reason, refusal, transaction_id,
        tracking_id, created_at, updated_at
    ) VALUES (
        :order_id, :scope, :fingerprint, :user_id, :email, :cart_etag, :currency_code, :total_units, :total_nanos,
        :worker, :traceparent, :snapshot, 'CHARGING', :attempt, :epoch, :owner, {now} + :lease_seconds, 0, '', '', '',
        '', {now}, {now}
    ) ON CONFLICT DO NOTHING RETURNING order_id, epoch, state, attempt
"""

# Steps of one transaction are a microsecond apart, by their place, so that the history has them in order.
EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, value->>'step', {now} + 0.000001 * CAST(value->>'place' AS INTEGER), state, attempt,
        value->>'detail'
    FROM {written} CROSS JOIN {items}
    WHERE {of_claim}
    ON CONFLICT DO NOTHING
"""

TAKE_OVER = """
    UPDATE orders SET
        epoch = epoch + 1, owner = :new_owner, worker = :worker, lease_until = {now} + :lease_seconds,
        updated_at = {now}
    WHERE {held} AND state = 'CHARGING' AND NOT {leased}
    RETURNING {entry}
"""

# The unique index alone is not enough: in SQLite a violation would roll back other orders of the same transaction.
REOPEN = """
    UPDATE orders SET
        state = 'CHARGING', attempt = attempt + 1, epoch = epoch + 1, owner = :new_owner, worker = :worker,
        lease_until = {now} + :lease_seconds, updated_at = {now}, failures = 0, reason = '', refusal = '',
        fingerprint = :fingerprint, email = :email, currency_code = :currency_code, total_units = :total_units,
        total_nanos = :total_nanos, traceparent = :traceparent, snapshot = :snapshot
    WHERE {held} AND state IN ('ABANDONED', 'DECLINED', 'VOIDED') AND NOT EXISTS (
        SELECT 1 FROM orders AS holder
        WHERE holder.user_id = :user_id AND holder.cart_etag = :cart_etag AND {live_cart}
    )
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
        epoch = epoch + 1, owner = :new_owner, worker = :worker, failures = failures + 1,
        lease_until = {now} + :recovery_lease_seconds * CASE WHEN failures < 4 THEN 1 ELSE 10 END
    WHERE order_id IN (SELECT order_id FROM due)
    RETURNING {entry}
"""

# The orders that the statement before has claimed have the longest leases, which is what an index finds them by.
CLAIM_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'taken_over', {now}, state, attempt, worker
    FROM orders
    WHERE {open} AND state = :state AND failures > 0 AND lease_until > {now} + :recovery_lease_seconds / 2
        AND owner = :new_owner
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

_EXPIRED = """
    SELECT '{queue}' AS queue, {failed} AS failed
    WHERE (SELECT min(lease_until) FROM orders WHERE {open} AND state = '{queue}' AND {tries}) <= {now}
        OR (SELECT max(lease_until) FROM orders WHERE {open} AND state = '{queue}' AND {tries})
            > {now} + :max_ahead_seconds
"""

_DUE = """
    SELECT '{queue}' AS queue, {failed} AS failed
    WHERE (SELECT min(due_at) FROM outbox WHERE dead_at IS NULL AND kind = '{queue}' AND {tries}) <= {now}
        OR (SELECT max(due_at) FROM outbox WHERE dead_at IS NULL AND kind = '{queue}' AND {tries})
            > {now} + :max_ahead_seconds
"""

# The queues with something to claim. Reading this first avoids write transactions, and SQLite has only one at a time.
DUE_QUEUES = " UNION ALL ".join(
    text.replace("{queue}", queue).replace("{failed}", failed).replace("{tries}", tries)
    for text, queues in ((_EXPIRED, [state.value for state in OPEN]), (_DUE, OUTBOX_KINDS))
    for queue in queues
    for failed, tries in (("0", "failures = 0"), ("1", "failures > 0"))
)

UPDATE = """
    UPDATE orders SET
        state = :after, tracking_id = :tracking_id, reason = :reason, refusal = :refusal,
        transaction_id = COALESCE(NULLIF(CAST(:transaction_id AS TEXT), ''), transaction_id),
        attempt = attempt + :further_attempts, epoch = epoch + :further_attempts,
        failures = 0, updated_at = {now}, lease_until = {now} + :lease_seconds
    WHERE {held} AND state = :before
    RETURNING order_id, epoch, state, attempt
"""

FILL_OUTBOX = """
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, kind, {now} + :outbox_lease_seconds, 0, ''
    FROM {written} CROSS JOIN (SELECT 'email' AS kind UNION ALL SELECT 'empty_cart') AS kinds
    WHERE {of_claim}
    ON CONFLICT DO NOTHING
"""

RELEASE = """
    UPDATE orders SET lease_until = {now} + :delay_seconds, reason = :reason
    WHERE {held} AND {open}
"""

RELEASE_EVENT = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'left', {now}, state, attempt, reason
    FROM orders WHERE {held} AND {open}
    ON CONFLICT DO NOTHING
"""

RELEASE_OWN = "UPDATE orders SET lease_until = 0 WHERE {active} AND {open} AND worker = :worker"

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

# Two replicas may settle the e-mail and the cart of one order at once. Without the lock each would still see the item
# of the other, and the order would remain SHIPPED.
LOCK_ORDERS = """
    SELECT order_id, epoch, state, attempt FROM orders
    WHERE {listed} ORDER BY order_id {for_update}
"""

DELETE_SENT = """
    DELETE FROM outbox
    WHERE {locked} AND (order_id, kind) IN (SELECT value->>'order_id', value->>'kind' FROM {items})
"""

SENT_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, value->>'step', {now}, state, attempt, ''
    FROM {items} JOIN {written} ON order_id = value->>'order_id'
    WHERE {of_items} ON CONFLICT DO NOTHING
"""

SET_DONE = """
    UPDATE orders SET state = 'DONE', updated_at = {now}
    WHERE {listed} AND state = 'SHIPPED'
        AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    RETURNING order_id, epoch, state, attempt
"""

DONE_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'done', {now} + 0.000001, state, attempt, ''
    FROM {written} WHERE {of_items} AND state = 'DONE'
    ON CONFLICT DO NOTHING
"""

COMPLETE = """
    SELECT order_id FROM orders
    WHERE {active} AND state = 'SHIPPED' AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    LIMIT :limit
"""

OLD = """
    SELECT order_id FROM orders
    WHERE created_at < {now} - :older_than_seconds AND updated_at < {now} - :older_than_seconds AND {finished}
    ORDER BY created_at, order_id LIMIT :limit
"""

DELETE_ORDERS = """
    DELETE FROM orders
    WHERE {listed} AND updated_at < {now} - :older_than_seconds AND {finished}
    RETURNING order_id
"""

DELETE_EVENTS = """
    DELETE FROM order_events
    WHERE {listed} AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.order_id = order_events.order_id)
"""

OUTBOX_OF = """
    SELECT order_id, kind, dead_at IS NOT NULL AS dead FROM outbox
    WHERE {listed} ORDER BY order_id, kind
"""

COUNT_ACTIVE = """
    SELECT state, count(*) AS orders, {now} - min(updated_at) AS age FROM orders WHERE {active} GROUP BY state
"""

COUNT_OUTBOX = "SELECT count(*) AS items FROM outbox"

COUNT_DEAD = "SELECT kind, count(*) AS items FROM outbox WHERE dead_at IS NOT NULL GROUP BY kind"

# An order's last change of state is the moment that filled its outbox.
OLDEST_NOTIFICATION = """
    SELECT {now} - updated_at AS age FROM orders
    WHERE {active} AND state = 'SHIPPED' AND EXISTS (
        SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id AND dead_at IS NULL
    )
    ORDER BY updated_at LIMIT 1
"""

COUNT_FUTURE = """
    SELECT count(*) AS orders
    FROM (SELECT 1 FROM orders WHERE created_at > {now} + :stuck_seconds LIMIT :limit) AS ahead
"""

LIST = "SELECT {entry} FROM orders ORDER BY created_at DESC, order_id DESC LIMIT :limit"

LIST_ACTIVE = """
    SELECT {entry} FROM orders WHERE {active} AND state = :state
    ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

LIST_RELEASED = """
    SELECT {entry} FROM orders WHERE {released_cart} AND state = :state
    ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

# Most orders are done, so the first of all orders by time contain enough.
LIST_DONE = """
    SELECT {entry} FROM orders WHERE state = 'DONE' ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

# Limited to the rows of an index that exists for carts: one more would cost every order a write.
LIST_OF_USER = """
    SELECT {entry} FROM orders WHERE user_id = :user_id AND {live_cart}
    ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

LIST_STUCK = """
    SELECT {entry} FROM orders
    WHERE {active} AND state IN (SELECT value->>'state' FROM {items}) AND {stuck}
    ORDER BY created_at, order_id LIMIT :limit
"""

SCAN = """
    SELECT {entry} FROM orders WHERE (created_at, order_id) > (:at, :key) ORDER BY created_at, order_id LIMIT :limit
"""

HISTORY = """
    SELECT at, step, state, attempt, epoch, detail FROM order_events WHERE order_id = :order_id ORDER BY at, epoch
"""

CHECK = "SELECT 1 FROM orders WHERE order_id = ''"
