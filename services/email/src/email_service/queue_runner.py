"""Sends spooled letters: several at once, and none while the relay is down."""

import asyncio
from contextlib import suppress

import structlog

from chassis.failpoints import Failpoints
from email_service import failpoints
from email_service.letters import Attempt, Letter, LetterState, MailRelay, Outcome, Spool, SpoolUnavailable
from email_service.metrics import LetterMetrics

log = structlog.get_logger()

# Relays reject clients with too many connections.
MAX_CONCURRENT = 20
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_MAX_RELAY_DELAY_SECONDS = 60.0
FIRST_LETTER_DELAY_SECONDS = 30.0
_MAX_LETTER_DELAY_SECONDS = 3_600.0
_FINAL = {
    Outcome.SENT: LetterState.SENT,
    Outcome.REFUSED: LetterState.REFUSED,
    Outcome.IN_DOUBT: LetterState.IN_DOUBT,
}


class QueueRunner:
    """Sends queued letters to the relay.

    When the relay accepts no letters, all of them wait, and one letter at a time tests it at growing intervals. When it
    defers a letter, only that one waits.
    """

    def __init__(self, spool: Spool, relay: MailRelay, metrics: LetterMetrics, active_failpoints: Failpoints) -> None:
        self._spool = spool
        self._relay = relay
        self._metrics = metrics
        self._failpoints = active_failpoints
        self._wake = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self._relay_failures = 0
        self._relay_retry_at = 0.0

    def notify(self) -> None:
        """Send a letter that was queued just now without waiting for the next turn."""
        self._wake.set()

    async def run(self) -> None:
        """Send letters, until cancelled."""
        while True:
            self._wake.clear()
            try:
                claimed = await self._claim()
            except SpoolUnavailable:
                log.warning("the spool is unavailable")
                claimed = 0
            if not claimed:
                await self._wait()

    async def close(self, within_seconds: float) -> None:
        """After `run` has ended, wait for letters on their way. One that takes longer is abandoned as by a crash."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=within_seconds)
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _claim(self) -> int:
        """Claim letters and begin to send them. Return their number."""
        limit = MAX_CONCURRENT if self._relay_failures == 0 else 1
        if len(self._sending) >= limit or asyncio.get_running_loop().time() < self._relay_retry_at:
            return 0
        letters = await self._spool.claim(limit - len(self._sending))
        for letter in letters:
            task = asyncio.create_task(self._send(letter), name=f"letter {letter.letter_id}")
            self._sending.add(task)
            task.add_done_callback(self._sent)
        return len(letters)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("sending a letter failed", exc_info=error)

    async def _wait(self) -> None:
        # Not `wait_for`: up to Python 3.11 it loses a cancellation that coincides with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self._wake.wait()

    async def _send(self, letter: Letter) -> None:
        async def begin_sending() -> bool:
            await self._failpoints.reach(failpoints.BEFORE_SENDING)
            begun = await self._spool.begin_sending(letter)
            await self._failpoints.reach(failpoints.AFTER_SENDING)
            return begun

        try:
            attempt = await self._relay.send(letter, begin_sending)
        except SpoolUnavailable:
            log.warning("the spool is unavailable")  # the letter is due again when its claim expires
            return
        await self._failpoints.reach(failpoints.BEFORE_OUTCOME)
        self._metrics.record_attempt(letter.letter_id, attempt.outcome, attempt.reason)
        self._record_relay_state(attempt)
        await self._store_outcome(letter, attempt)
        await self._failpoints.reach(failpoints.AFTER_OUTCOME)

    def _record_relay_state(self, attempt: Attempt) -> None:
        now = asyncio.get_running_loop().time()
        if attempt.outcome is not Outcome.NOT_SENT:
            self._relay_failures, self._relay_retry_at = 0, 0.0
        elif now >= self._relay_retry_at:  # letters that fail at the same time are one failure
            self._relay_failures += 1
            self._relay_retry_at = now + relay_delay_seconds(self._relay_failures)

    async def _store_outcome(self, letter: Letter, attempt: Attempt) -> None:
        """Store an outcome, however long the spool is unavailable: nothing else has it."""
        while True:
            try:
                return await self._store(letter, attempt)
            except SpoolUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _store(self, letter: Letter, attempt: Attempt) -> None:
        if state := _FINAL.get(attempt.outcome):
            await self._spool.finish(letter, state, attempt.reason)
        elif attempt.outcome is not Outcome.CLAIM_LOST:
            deferred = attempt.outcome is Outcome.DEFERRED
            delay = letter_delay_seconds(letter.deferrals) if deferred else 0.0
            await self._spool.postpone(letter, delay_seconds=delay, reason=attempt.reason, deferred=deferred)


def relay_delay_seconds(failures: int) -> float:
    """Return the delay after consecutive failures of the relay: 1 s after the first one, doubled by each more."""
    return min(2.0 ** min(failures - 1, 10), _MAX_RELAY_DELAY_SECONDS)


def letter_delay_seconds(deferrals: int) -> float:
    """Return the delay after a letter was deferred, by the number of times that it was deferred before."""
    return min(FIRST_LETTER_DELAY_SECONDS * 2.0 ** min(deferrals, 10), _MAX_LETTER_DELAY_SECONDS)
