"""What the background loops of outbox and recovery share: back-off and error isolation."""

from collections.abc import Awaitable

import structlog

log = structlog.get_logger()

MAX_RETRY_DELAY_SECONDS = 300.0


def retry_delay_seconds(failures: int) -> float:
    """Return the delay before the next try: 2 s after the first failure, doubled by each more, 5 minutes at most."""
    return min(2.0 ** min(failures, 10), MAX_RETRY_DELAY_SECONDS)


async def log_unexpected_errors(work: Awaitable[None], event: str) -> None:
    """Await one unit of work. Log any error under this event, so that the loop continues with the next unit."""
    try:
        await work
    except Exception:
        log.exception(event)
