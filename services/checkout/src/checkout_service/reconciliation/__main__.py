"""`python -m checkout_service.reconciliation` compares the records of orders, logs what disagrees, and exits.

Exit status: 0 if all records agree, 1 if some do not, 2 if they could not be read.
"""

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import grpc
import structlog

from chassis.errors import DomainError
from chassis.proxies import ignore_proxies
from chassis.rpc import client
from chassis.settings import NonNegativeFloat, PositiveFloat, Settings, load
from chassis.telemetry import logging, otlp, semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.reconciliation.reader import Records, open_reader
from checkout_service.reconciliation.rules import Kind, Mismatch

log = structlog.get_logger()

AGREE, DISAGREE, NOT_READ = 0, 1, 2
_NAME = "reconciliation"
_CALL_SECONDS = 15.0


class ReconciliationSettings(Settings):
    """Settings of the reconciliation, read from the environment. Addresses are host:port of internal services."""

    checkout_internal_addr: str
    payment_internal_addr: str
    shipping_internal_addr: str
    email_internal_addr: str | None = None
    # Orders, charges and shipments from before are not compared.
    window_hours: PositiveFloat = 24
    # How long the steps of an order may take before a missing one is a mismatch.
    grace_minutes: NonNegativeFloat = 10


def main() -> int:
    """Reconcile and return the exit status."""
    settings = load(ReconciliationSettings)
    if not settings.use_http_proxy:
        ignore_proxies()
    telemetry = otlp.configure(_NAME)
    logging.configure(_NAME, level=settings.log_level, logger=telemetry.logger)
    try:
        records = asyncio.run(_read(settings, telemetry))
    except DomainError as error:
        log.error("records not read", reason=error.reason, message=error.message)  # noqa: TRY400 - it is expected
        return NOT_READ
    else:
        mismatches = records.mismatches(settled_before=time.time() - settings.grace_minutes * 60)
        _report(records, mismatches, telemetry)
        return DISAGREE if mismatches else AGREE
    finally:
        telemetry.shutdown()


async def _read(settings: ReconciliationSettings, telemetry: Telemetry) -> Records:
    def channel(peer: str, service: str, method: str) -> grpc.aio.Channel:
        return client.channel(
            getattr(settings, f"{peer}_internal_addr"),
            service,
            timeout_seconds=_CALL_SECONDS,
            retryable=[method],
            telemetry=telemetry,
            certificates=settings.tls_folder,
        )

    async with open_reader(channel, with_messages=settings.email_internal_addr is not None) as reader:
        return await reader.read(time.time() - settings.window_hours * 3600)


def _report(records: Records, mismatches: Sequence[Mismatch], telemetry: Telemetry) -> None:
    counts = Counter(mismatch.kind for mismatch in mismatches)
    by_kind = [(counts[kind], ((semconv.MISMATCH_KIND, kind.value),)) for kind in Kind]
    telemetry.observe(semconv.MISMATCHES, lambda: by_kind)
    telemetry.observe(semconv.RECONCILED_ORDERS, lambda: [(len(records.orders), ())])
    for mismatch in mismatches:
        log.error("mismatch", **asdict(mismatch))
    log.info(
        "reconciled",
        orders=len(records.orders),
        charges=records.charges,
        shipments=records.shipments,
        mails_are_read=records.complete_since.messages < math.inf,
        mismatches=len(mismatches),
    )


if __name__ == "__main__":
    sys.exit(main())
