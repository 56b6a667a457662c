# ruff: noqa: S608 - the SQL is built only from constants
"""The spool's SQL for SQLite and PostgreSQL (see `chassis.sql.database`). Every statement is safe to repeat."""

from chassis.sql.database import NOW

# A due time that is too far in the future must come from a wrong clock, so treat the message as due.
_DUE = f"(due_at <= {NOW} OR due_at > {NOW} + :horizon_seconds)"

ADD = f"""
    INSERT INTO letters (
        letter_id, state, recipient, message, digests, attempt, deferrals, reason, due_at, accepted_at, changed_at
    ) VALUES (:message_id, 'QUEUED', :recipient, :content, :digests, 0, 0, '', {NOW}, {NOW}, {NOW})
    ON CONFLICT (letter_id) DO UPDATE SET letter_id = EXCLUDED.letter_id RETURNING state
"""

CLAIM = f"""
    WITH due AS MATERIALIZED (
        SELECT letter_id FROM letters WHERE state = 'QUEUED' AND {_DUE}
        ORDER BY due_at LIMIT :limit OFFSET :passed FOR UPDATE SKIP LOCKED
    )
    UPDATE letters SET attempt = attempt + 1, due_at = {NOW} + :claim_seconds
    WHERE letter_id IN (SELECT letter_id FROM due) AND state = 'QUEUED'
    RETURNING letter_id AS message_id, recipient, message AS content, attempt, deferrals, digests
"""

BEGIN_SENDING = f"""
    UPDATE letters SET state = 'SENDING', changed_at = {NOW}, due_at = {NOW} + :sending_seconds
    WHERE letter_id = :letter_id AND attempt = :attempt AND state IN ('QUEUED', 'SENDING') RETURNING letter_id
"""

FINISH = f"""
    UPDATE letters SET
        state = CAST(:state AS VARCHAR), reason = :reason, closed = :closed, changed_at = {NOW},
        digests = CASE WHEN CAST(:state AS VARCHAR) = 'SENT' THEN :digests ELSE digests END,
        recipient = CASE WHEN CAST(:state AS VARCHAR) = 'SENT' THEN '' ELSE recipient END,
        message = CASE WHEN CAST(:state AS VARCHAR) = 'SENT' THEN NULL ELSE message END
    WHERE letter_id = :letter_id AND attempt = :attempt AND state IN ('QUEUED', 'SENDING', 'IN_DOUBT')
    RETURNING letter_id
"""

POSTPONE = f"""
    UPDATE letters SET
        state = 'QUEUED', reason = :reason, closed = '', due_at = {NOW} + :delay_seconds,
        deferrals = deferrals + :deferrals
    WHERE letter_id = :letter_id AND attempt = :attempt AND state IN ('QUEUED', 'SENDING', 'IN_DOUBT')
    RETURNING letter_id
"""

GIVE_UP_OVERDUE = f"""
    UPDATE letters SET state = 'IN_DOUBT', reason = 'NO_RESPONSE', changed_at = {NOW}
    WHERE letter_id IN (
        SELECT letter_id FROM letters WHERE state = 'SENDING' AND {_DUE} ORDER BY due_at LIMIT :limit OFFSET :passed
    ) AND state = 'SENDING' RETURNING letter_id
"""

# Runs at startup if no other process uses the spool. Don't add RETURNING: there may be hundreds of thousands of rows.
RELEASE_CLAIMS = f"""
    UPDATE letters SET due_at = {NOW} WHERE state <> 'SENT' AND state IN ('QUEUED', 'SENDING')
"""

OLD = """
    SELECT letter_id, accepted_at AS at FROM letters WHERE changed_at < :older_than
    ORDER BY changed_at LIMIT :limit OFFSET :passed
"""

DELETE_OLD = """
    DELETE FROM letters
    WHERE letter_id IN (SELECT value->>'letter_id' FROM json_each(:items)) AND changed_at < :older_than RETURNING state
"""

CLOSE = """
    UPDATE letters SET closed = :closed
    WHERE letter_id = :letter_id AND state IN ('REFUSED', 'IN_DOUBT') RETURNING letter_id
"""

REQUEUE = f"""
    UPDATE letters SET
        state = 'QUEUED', reason = '', closed = '', attempt = attempt + 1, due_at = {NOW}, changed_at = {NOW}
    WHERE letter_id = :letter_id AND state IN ('REFUSED', 'IN_DOUBT') RETURNING letter_id
"""

FORGET_SENT = "DELETE FROM letters WHERE letter_id = :letter_id AND state = 'SENT' RETURNING letter_id"

_RECORD = """
    letter_id AS message_id, state, recipient, attempt AS attempts, reason, accepted_at, changed_at, closed
"""

LIST = f"""
    SELECT {_RECORD}, NULL AS content, NULL AS digests FROM letters
    WHERE state = :state AND state <> 'SENT' ORDER BY changed_at LIMIT :limit
"""

READ = f"""
    SELECT {_RECORD}, message AS content, digests FROM letters
    WHERE letter_id IN (SELECT value->>'id' FROM json_each(:items))
"""

STATISTICS = f"""
    SELECT state, COUNT(*) AS letters, {NOW} - MIN(changed_at) AS oldest_seconds FROM letters
    WHERE state <> 'SENT' AND closed = '' GROUP BY state
"""
