"""Sends spooled messages: several at once while the relay is up, only one at a time while it is down."""

import asyncio
import itertools
from contextlib import suppress
from functools import partial

import structlog

from chassis.background import finish
from chassis.failpoints import Failpoints
from chassis.values.backoff import backoff_seconds
from email_service import failpoints
from email_service.messages import Attempt, ClaimedMessage, MessageState, Outcome, SpoolUnavailable
from email_service.metrics import MessageMetrics
from email_service.smtp_relay import SmtpRelay
from email_service.spool.sql import Spool

log = structlog.get_logger()

MAX_CONCURRENT = 20  # relays reject clients that open too many connections
_MAX_UNSTORED = 1_000  # how far MAX_CONCURRENT may be exceeded while outcomes can't be stored
_POLL_SECONDS = 1.0
# The backoff after consecutive relay or spool failures (retry_seconds), or after a message is deferred (delay_seconds).
retry_seconds = partial(backoff_seconds, first_seconds=1.0, longest_seconds=60.0)
delay_seconds = partial(backoff_seconds, first_seconds=30.0, longest_seconds=3_600.0)
_FINAL = {
    Outcome.SENT: MessageState.SENT,
    Outcome.REFUSED: MessageState.REFUSED,
    Outcome.UNDELIVERABLE: MessageState.REFUSED,
    Outcome.IN_DOUBT: MessageState.IN_DOUBT,
}


class QueueRunner:
    """Sends queued messages to the relay.

    While the relay is down or accepts no messages, the runner tries one at a time, with increasing backoff, and leaves
    the rest in the spool. If the relay defers a single message, only that message waits.
    """

    def __init__(self, spool: Spool, relay: SmtpRelay, metrics: MessageMetrics, active_failpoints: Failpoints) -> None:
        self._spool = spool
        self._relay = relay
        self._metrics = metrics
        self._failpoints = active_failpoints
        self._sending: set[asyncio.Task[None]] = set()
        self._unstored = 0
        self._relay_failures = 0
        self._relay_retry_at = 0.0

    async def run(self) -> None:
        while True:
            self._spool.wake.clear()
            try:
                claimed = await self._claim()
            except SpoolUnavailable:
                log.warning("the spool is unavailable")
                claimed = 0
            if not claimed:
                await self._wait()

    async def close(self, within_seconds: float) -> None:
        """Wait for messages that are being sent, and abandon any that take too long. Call this once `run` has ended."""
        await finish(self._sending, within_seconds)

    async def _claim(self) -> int:
        """Claim messages and start sending them. Return the number of claimed messages."""
        limit = MAX_CONCURRENT if self._relay_failures == 0 else 1
        room = limit - len(self._sending) + min(self._unstored, _MAX_UNSTORED)
        if room <= 0 or asyncio.get_running_loop().time() < self._relay_retry_at:
            return 0
        messages = await self._spool.claim(room)
        for message in messages:
            task = asyncio.create_task(self._send(message), name=f"message {message.message_id}")
            self._sending.add(task)
            task.add_done_callback(self._sent)
        return len(messages)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._spool.wake.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("sending a message failed", exc_info=error)

    async def _wait(self) -> None:
        # Don't use `wait_for`: up to Python 3.11, it loses a cancellation that coincides with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self._spool.wake.wait()

    async def _send(self, message: ClaimedMessage) -> None:
        async def begin_sending() -> bool:
            await self._failpoints.reach(failpoints.SENDING[0])
            begun = await self._spool.begin_sending(message)
            await self._failpoints.reach(failpoints.SENDING[1])
            return begun

        try:
            attempt = await self._relay.send(message, begin_sending)
        except SpoolUnavailable:
            log.warning("the spool is unavailable")  # the message is due again once its claim expires
            return
        await self._failpoints.reach(failpoints.OUTCOME[0])
        self._metrics.record_attempt(message.message_id, attempt.outcome, attempt.reason)
        self._record_relay_state(attempt)
        await self._store_outcome(message, attempt)
        await self._failpoints.reach(failpoints.OUTCOME[1])

    def _record_relay_state(self, attempt: Attempt) -> None:
        now = asyncio.get_running_loop().time()
        if attempt.outcome is not Outcome.NOT_SENT:
            self._relay_failures, self._relay_retry_at = 0, 0.0
        elif now >= self._relay_retry_at:  # messages that fail at the same time count as one failure
            self._relay_failures += 1
            self._relay_retry_at = now + retry_seconds(self._relay_failures)

    async def _store_outcome(self, message: ClaimedMessage, attempt: Attempt) -> None:
        """Store an outcome, retrying until the spool is available: until then, only this process has the outcome.

        Until the outcome is stored, the message does not count toward MAX_CONCURRENT.
        """
        self._unstored += 1
        try:
            for failures in itertools.count(1):
                try:
                    return await self._store(message, attempt)
                except SpoolUnavailable:
                    await asyncio.sleep(retry_seconds(failures))
        finally:
            self._unstored -= 1

    async def _store(self, message: ClaimedMessage, attempt: Attempt) -> None:
        if state := _FINAL.get(attempt.outcome):
            # A missing mailbox is the customer's mistake. No operator can fix it, so close the message at once.
            closed = "relay: no such mailbox" if attempt.outcome is Outcome.UNDELIVERABLE else ""
            await self._spool.finish(message, state, attempt.reason, closed)
        elif attempt.outcome is not Outcome.CLAIM_LOST:
            deferred = attempt.outcome is Outcome.DEFERRED
            delay = delay_seconds(message.deferrals + 1) if deferred else 0.0
            await self._spool.postpone(message, delay_seconds=delay, reason=attempt.reason, deferred=deferred)
