"""The journal's SQL, common to SQLite and PostgreSQL; `database.Dialect` renders it.

`:name` is a parameter. A field in braces is a fragment, or one of these, which differ between the databases:

    {now}          the database's clock, in seconds since 1970
    {for_update}   makes a SELECT lock its rows, after concurrent transactions that have locked them
    {skip_locked}  makes a SELECT lock its rows, and skip those that a concurrent transaction has locked
    {items}        the elements of the JSON array in the parameter `items`, as rows with the column `value`

Within a transaction, an INSERT that depends on the UPDATE before it looks for the state that the UPDATE wrote.
"""

FRAGMENTS = {
    # Unfinished orders: the condition of a partial index, which a query must repeat word for word.
    "active": "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')",
    "open": "{active} AND state IN ('CHARGING', 'VOIDING')",
    # Orders that hold their cart: the condition of a unique partial index.
    "live_cart": """
        cart_etag <> '' AND state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')
    """,
    "stuck": "({active} AND (state IN ('NEEDS_REFUND', 'NEEDS_REVIEW') OR updated_at < {now} - :stuck_seconds))",
    # Only the worker that holds the order finds it.
    "held": "order_id = :order_id AND attempt = :attempt AND epoch = :epoch AND owner = :owner",
    "entry": """
        order_id, fingerprint, user_id, email, cart_etag, state, attempt, epoch, owner, lease_until > {now} AS leased,
        failures, reason, refusal, tracking_id, traceparent, created_at, updated_at, {stuck} AS stuck, snapshot
    """,
}

FIND = "SELECT {entry} FROM orders WHERE scope = :scope"

FIND_OF_CART = "SELECT {entry} FROM orders WHERE user_id = :user_id AND cart_etag = :cart_etag AND {live_cart}"

READ = "SELECT {entry} FROM orders WHERE order_id = :order_id"

READ_MANY = "SELECT {entry} FROM orders WHERE order_id IN (SELECT value->>'order_id' FROM {items})"

INSERT = """
    INSERT INTO orders (
        order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, worker,
        traceparent, snapshot, state, attempt, epoch, owner, lease_until, failures, reason, refusal, transaction_id,
        tracking_id, created_at, updated_at
    ) VALUES (
        :order_id, :scope, :fingerprint, :user_id, :email, :cart_etag, :currency_code, :total_units, :total_nanos,
        :worker, :traceparent, :snapshot, 'CHARGING', :attempt, :epoch, :owner, {now} + :lease_seconds, 0, '', '', '',
        '', {now}, {now}
    ) ON CONFLICT DO NOTHING RETURNING order_id
"""

# Steps of one transaction are a microsecond apart, by their place, so that the history has them in order.
EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, value->>'step', {now} + 0.000001 * CAST(value->>'place' AS INTEGER), state, attempt,
        value->>'detail'
    FROM orders CROSS JOIN {items}
    WHERE {held} AND state = :state
    ON CONFLICT DO NOTHING
"""

TAKE_OVER = """
    UPDATE orders SET
        epoch = epoch + 1, owner = :new_owner, worker = :worker, lease_until = {now} + :lease_seconds,
        updated_at = {now}
    WHERE {held} AND state = 'CHARGING' AND lease_until <= {now}
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

# A worker may die of an order each time, so its next attempt is scheduled before this one, with a growing delay.
CLAIM_EXPIRED = """
    WITH due AS MATERIALIZED (
        SELECT order_id FROM orders
        WHERE {open} AND lease_until <= {now} ORDER BY lease_until LIMIT :limit {skip_locked}
    )
    UPDATE orders SET
        epoch = epoch + 1, owner = :new_owner, worker = :worker, failures = failures + 1,
        lease_until = {now} + :recovery_lease_seconds * CASE WHEN failures < 4 THEN 1 ELSE 10 END
    WHERE order_id IN (SELECT order_id FROM due)
    RETURNING {entry}
"""

CLAIM_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'taken_over', {now}, state, attempt, worker
    FROM orders WHERE {open} AND worker = :worker AND failures > 0
    ON CONFLICT DO NOTHING
"""

UPDATE = """
    UPDATE orders SET
        state = :after, tracking_id = :tracking_id, reason = :reason,
        transaction_id = COALESCE(NULLIF(CAST(:transaction_id AS TEXT), ''), transaction_id),
        refusal = COALESCE(NULLIF(CAST(:refusal AS TEXT), ''), refusal),
        attempt = attempt + :further_attempts, epoch = epoch + :further_attempts,
        failures = 0, updated_at = {now}, lease_until = {now} + :lease_seconds
    WHERE {held} AND state = :before
    RETURNING order_id
"""

FILL_OUTBOX = """
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, kind, {now} + :outbox_lease_seconds, 0, ''
    FROM orders CROSS JOIN (SELECT 'email' AS kind UNION ALL SELECT 'empty_cart') AS kinds
    WHERE {held} AND state = 'SHIPPED'
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

RELEASE_OWN = "UPDATE orders SET lease_until = 0 WHERE {open} AND worker = :worker"

CLAIM_OUTBOX = """
    WITH due AS MATERIALIZED (
        SELECT order_id, kind FROM outbox WHERE due_at <= {now} ORDER BY due_at LIMIT :limit {skip_locked}
    )
    UPDATE outbox SET failures = failures + 1, due_at = {now} + :recovery_lease_seconds
    WHERE (order_id, kind) IN (SELECT order_id, kind FROM due)
    RETURNING order_id, kind, failures
"""

POSTPONE = """
    UPDATE outbox SET due_at = {now} + :delay_seconds, reason = :reason WHERE order_id = :order_id AND kind = :kind
"""

# Two replicas may settle the e-mail and the cart of one order at once. Without the lock each would still see the item
# of the other, and the order would remain SHIPPED.
LOCK_ORDERS = """
    SELECT order_id FROM orders
    WHERE order_id IN (SELECT value->>'order_id' FROM {items}) ORDER BY order_id {for_update}
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

COMPLETE = """
    SELECT order_id FROM orders
    WHERE {active} AND state = 'SHIPPED' AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    LIMIT :limit
"""

OUTBOX_OF = """
    SELECT order_id, kind FROM outbox
    WHERE order_id IN (SELECT value->>'order_id' FROM {items}) ORDER BY order_id, kind
"""

COUNT_ACTIVE = """
    SELECT state, count(*) AS orders, {now} - min(updated_at) AS age FROM orders WHERE {active} GROUP BY state
"""

COUNT_OUTBOX = "SELECT count(*) AS items FROM outbox"

LIST = """
    SELECT {entry} FROM orders
    WHERE state IN (SELECT value->>'state' FROM {items}) ORDER BY created_at DESC, order_id DESC LIMIT :limit
"""

LIST_STUCK = """
    SELECT {entry} FROM orders
    WHERE state IN (SELECT value->>'state' FROM {items}) AND {stuck} ORDER BY created_at, order_id LIMIT :limit
"""

HISTORY = """
    SELECT at, step, state, attempt, epoch, detail FROM order_events WHERE order_id = :order_id ORDER BY at, epoch
"""

CHECK = "SELECT 1 FROM orders WHERE order_id = ''"
