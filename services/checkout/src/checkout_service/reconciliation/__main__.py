"""`python -m checkout_service.reconciliation` compares order records, logs mismatches, and exits.

It waits for peers that are still starting, and reads everything again if a peer fails while its records are being read.
Exit status: 0 if all records agree, 1 if some disagree, 2 if the records could not be read in time or the mismatches
not be recorded.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import grpc
import structlog

from chassis.errors import DeadlineExceeded, DomainError, Unavailable
from chassis.proxies import ignore_proxies
from chassis.rpc import client
from chassis.settings import NonNegativeFloat, PositiveFloat, Settings, load
from chassis.telemetry import logging, otlp, semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.reconciliation.reader import Comparison, Reader, open_reader
from checkout_service.reconciliation.rules import Kind

log = structlog.get_logger()

AGREE, DISAGREE, NOT_READ = 0, 1, 2
_NAME = "reconciliation"
_CALL_SECONDS = 15.0
_POLL_SECONDS = 0.1
# Connecting to peers that are up takes less than this, so only longer waits are logged.
_CONNECTED_SECONDS = 0.5


class ReconciliationSettings(Settings):
    """Reconciliation settings, read from the environment. Each address is the `host:port` of an internal service."""

    checkout_internal_addr: str
    payment_internal_addr: str
    shipping_internal_addr: str
    email_internal_addr: str | None = None
    # Orders, charges and shipments older than this are not compared.
    window_hours: PositiveFloat = 24
    # How long an order's steps may take before a missing step counts as a mismatch.
    grace_minutes: NonNegativeFloat = 10
    # How long to wait for peers to become reachable: a new pod's network policies take effect only after a while.
    wait_seconds: NonNegativeFloat = 120
    # Stop and report after this long. At the job's deadline, Kubernetes would kill the job before it could report.
    stop_after_seconds: PositiveFloat = 480


def main() -> int:
    settings = load(ReconciliationSettings)
    if not settings.use_http_proxy:
        ignore_proxies()
    telemetry = otlp.configure(_NAME)
    logging.configure(_NAME, level=settings.log_level, logger=telemetry.logger)
    try:
        found = asyncio.run(_compare(settings, telemetry))
    except DomainError as error:
        log.error("records not read", reason=error.reason, message=error.message)  # noqa: TRY400 - an expected error needs no traceback
        return NOT_READ
    else:
        _report_totals(found, telemetry)
        return NOT_READ if found.hours_read is not None else DISAGREE if found.mismatches else AGREE
    finally:
        telemetry.shutdown()


async def _compare(settings: ReconciliationSettings, telemetry: Telemetry) -> Comparison:
    channels: dict[str, grpc.aio.Channel] = {}

    def channel(peer: str, service: str, method: str) -> grpc.aio.Channel:
        address = getattr(settings, f"{peer}_internal_addr")
        channels[peer] = client.channel_of(
            settings, telemetry, address, service, timeout_seconds=_CALL_SECONDS, retryable=[method]
        )
        return channels[peer]

    async with open_reader(channel, with_confirmations=settings.email_internal_addr is not None) as reader:
        found = await _compare_in_time(reader, channels, settings)
        _report_mismatches(found, telemetry)  # first, because recording them may fail
        await reader.record(found)
        return found


async def _compare_in_time(
    reader: Reader, channels: Mapping[str, grpc.aio.Channel], settings: ReconciliationSettings
) -> Comparison:
    """Wait until all peers are healthy, then compare the records. Start over if a peer fails, until time runs out."""
    started, logged = time.monotonic(), ""
    while True:
        waited = time.monotonic() - started
        states = {peer: channel.get_state(try_to_connect=True) for peer, channel in channels.items()}
        missing = ", ".join(peer for peer, state in states.items() if state is not grpc.ChannelConnectivity.READY)
        if not missing or waited >= settings.wait_seconds:
            try:
                now = time.time()
                since, due_before = now - settings.window_hours * 3600, now - settings.grace_minutes * 60
                return await reader.compare(since, due_before, within_seconds=settings.stop_after_seconds - waited)
            except (Unavailable, DeadlineExceeded) as error:
                if missing:
                    message = f"{missing} did not answer for {settings.wait_seconds:g} s: {error.message}"
                    raise Unavailable(message) from error
                if waited >= settings.wait_seconds:
                    raise
        elif missing != logged and waited > _CONNECTED_SECONDS:
            log.info("waiting", peers=missing)
            logged = missing
        await asyncio.sleep(_POLL_SECONDS)


def _report_mismatches(found: Comparison, telemetry: Telemetry) -> None:
    counts = Counter(mismatch.kind for mismatch in found.mismatches)
    # An incomplete comparison may trigger the mismatch alert, but must not resolve it.
    kinds = [*Kind] if found.hours_read is None else [*counts]
    by_kind = [(counts[kind], ((semconv.MISMATCH_KIND, kind.value),)) for kind in kinds]
    telemetry.observe(semconv.MISMATCHES, lambda: by_kind)
    for mismatch in found.mismatches:
        log.error("mismatch", **asdict(mismatch))


def _report_totals(found: Comparison, telemetry: Telemetry) -> None:
    totals = asdict(found) | {"mismatches": len(found.mismatches), "agreed": len(found.agreed)}
    if found.hours_read is None:
        telemetry.observe(semconv.RECONCILED_ORDERS, lambda: [(found.orders, ())])
        log.info("reconciled", **totals)
    else:
        message = f"only the first {found.hours_read:.2f} hours were compared: set WINDOW_HOURS to less than that"
        log.error("records not read", reason="OUT_OF_TIME", message=message, **totals)


if __name__ == "__main__":
    sys.exit(main())
