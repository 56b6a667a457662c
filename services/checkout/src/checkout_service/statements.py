# ruff: noqa: S608 - every part of every statement is a constant
"""The journal's SQL, the same for SQLite and PostgreSQL.

`?` stands for a parameter, `{now}` for the database's clock in seconds since 1970, `{skip_locked}` for what keeps two
workers from the same rows. An INSERT that depends on the UPDATE before it looks for what that one wrote.
"""

ENTRY_COLUMNS = """
    order_id, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, state, attempt, epoch,
    lease_until > {now}, failures, reason, refusal, tracking_id, traceparent, created_at, updated_at,
    {stuck}, snapshot, answer
"""

ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND')"
"""Orders that are not finished: the condition of a partial index, to be repeated word for word."""

OPEN = f"{ACTIVE} AND state IN ('CHARGING', 'VOIDING')"

STUCK = f"({ACTIVE} AND (state = 'NEEDS_REFUND' OR updated_at < {{now}} - {{stuck_seconds}}))"

FIND = "SELECT {entry} FROM orders WHERE scope = ?"

FIND_RECENT = """
    SELECT {entry} FROM orders
    WHERE fingerprint = ? AND state IN ('CHARGING', 'SHIPPED', 'DONE') AND created_at > {now} - {replay_seconds}
    ORDER BY order_id DESC LIMIT 1
"""

READ = "SELECT {entry} FROM orders WHERE order_id = ?"

INSERT = """
    INSERT INTO orders (
        order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, worker,
        traceparent, snapshot, state, attempt, epoch, lease_until, failures, reason, refusal, transaction_id,
        tracking_id, created_at, updated_at
    ) VALUES (
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'CHARGING', 1, 1, {now} + {lease_seconds}, 0, '', '', '', '', {now}, {now}
    ) ON CONFLICT (scope) DO NOTHING RETURNING order_id
"""

# Parameters: step, detail, order_id, epoch, state.
EVENT = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, CAST(? AS TEXT), {now}, state, attempt, CAST(? AS TEXT)
    FROM orders WHERE order_id = ? AND epoch = ? AND state = ?
    ON CONFLICT DO NOTHING
"""

# Two steps of one transaction, a microsecond apart, so that a history keeps their order.
# Parameters: step, detail, step, detail, order_id, epoch, state.
TWO_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, step, {now} + 0.000001 * place, state, attempt, detail
    FROM orders CROSS JOIN (
        SELECT CAST(? AS TEXT) AS step, CAST(? AS TEXT) AS detail, 0 AS place
        UNION ALL SELECT CAST(? AS TEXT), CAST(? AS TEXT), 1
    ) AS steps
    WHERE order_id = ? AND epoch = ? AND state = ?
    ON CONFLICT DO NOTHING
"""

TAKE_OVER = """
    UPDATE orders SET
        epoch = epoch + 1, worker = ?, lease_until = {now} + {lease_seconds}, updated_at = {now}, state = 'CHARGING',
        attempt = CASE WHEN state = 'ABANDONED' THEN attempt + 1 ELSE attempt END
    WHERE order_id = ? AND epoch = ? AND state = ? AND (state = 'ABANDONED' OR lease_until <= {now})
    RETURNING {entry}
"""

# A worker that dies of an order each time tries it ever more rarely, so the next try is planned before this one.
CLAIM_EXPIRED = f"""
    WITH due AS MATERIALIZED (
        SELECT order_id FROM orders WHERE {OPEN} AND lease_until <= {{now}} ORDER BY lease_until LIMIT ? {{skip_locked}}
    )
    UPDATE orders SET
        epoch = epoch + 1, worker = ?, failures = failures + 1,
        lease_until = {{now}} + {{recovery_lease_seconds}} * CASE WHEN failures < 4 THEN 1 ELSE 10 END
    WHERE order_id IN (SELECT order_id FROM due)
    RETURNING {{entry}}
"""

CLAIM_EVENTS = f"""
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'taken_over', {{now}}, state, attempt, worker
    FROM orders WHERE {OPEN} AND worker = ? AND failures > 0
    ON CONFLICT DO NOTHING
"""

UPDATE = """
    UPDATE orders SET
        state = ?, answer = ?, tracking_id = ?, transaction_id = COALESCE(NULLIF(CAST(? AS TEXT), ''), transaction_id),
        refusal = COALESCE(NULLIF(CAST(? AS TEXT), ''), refusal), reason = ?,
        failures = 0, updated_at = {now}, lease_until = {now} + {lease_seconds}
    WHERE order_id = ? AND epoch = ? AND state = ?
    RETURNING order_id
"""

FILL_OUTBOX = """
    INSERT INTO outbox (order_id, kind, due_at, failures, reason)
    SELECT order_id, kind, {now} + {outbox_lease_seconds}, 0, ''
    FROM orders CROSS JOIN (SELECT 'email' AS kind UNION ALL SELECT 'empty_cart') AS kinds
    WHERE order_id = ? AND epoch = ? AND state = 'SHIPPED'
    ON CONFLICT DO NOTHING
"""

RELEASE = f"""
    UPDATE orders SET lease_until = {{now}} + CAST(? AS REAL), reason = ?
    WHERE order_id = ? AND epoch = ? AND {OPEN}
    RETURNING state
"""

RELEASE_OWN = f"UPDATE orders SET lease_until = 0 WHERE {OPEN} AND worker = ?"

CLAIM_OUTBOX = """
    WITH due AS MATERIALIZED (
        SELECT order_id, kind FROM outbox WHERE due_at <= {now} ORDER BY due_at LIMIT ? {skip_locked}
    )
    UPDATE outbox SET failures = failures + 1, due_at = {now} + {recovery_lease_seconds}
    WHERE (order_id, kind) IN (SELECT order_id, kind FROM due)
    RETURNING order_id, kind, failures
"""

POSTPONE = "UPDATE outbox SET due_at = {now} + CAST(? AS REAL), reason = ? WHERE order_id = ? AND kind = ?"

# What follows takes as many rows as a batch has.
READ_MANY = "SELECT {entry} FROM orders WHERE order_id IN ({marks})"

DROP_SENT = """
    WITH sent(order_id, kind) AS (VALUES {pairs})
    DELETE FROM outbox WHERE (order_id, kind) IN (SELECT order_id, kind FROM sent)
"""

SENT_EVENTS = """
    WITH sent(order_id, step) AS (VALUES {pairs})
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT orders.order_id, epoch, step, {now}, state, attempt, ''
    FROM sent JOIN orders ON orders.order_id = sent.order_id
    WHERE TRUE ON CONFLICT DO NOTHING
"""

SET_DONE = f"""
    UPDATE orders SET state = 'DONE', updated_at = {{now}}
    WHERE order_id IN ({{marks}}) AND {ACTIVE} AND state = 'SHIPPED'
        AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.order_id = orders.order_id)
    RETURNING order_id
"""

DONE_EVENTS = """
    INSERT INTO order_events (order_id, epoch, step, at, state, attempt, detail)
    SELECT order_id, epoch, 'done', {now} + 0.000001, state, attempt, ''
    FROM orders WHERE order_id IN ({marks}) AND state = 'DONE'
    ON CONFLICT DO NOTHING
"""

OUTBOX_OF = "SELECT order_id, kind FROM outbox WHERE order_id IN ({marks}) ORDER BY order_id, kind"

COUNT_ACTIVE = f"SELECT state, count(*), {{now}} - min(updated_at) FROM orders WHERE {ACTIVE} GROUP BY state"

COUNT_OUTBOX = "SELECT count(*) FROM outbox"

LIST = "SELECT {entry} FROM orders WHERE {condition} ORDER BY order_id {direction} LIMIT ?"

HISTORY = "SELECT at, step, state, attempt, epoch, detail FROM order_events WHERE order_id = ? ORDER BY at, epoch"

CHECK = "SELECT 1 FROM orders WHERE order_id = ''"
