"""`python -m checkout_service.reconciliation` compares the records of orders, logs what disagrees, and exits.

Exit status: 0 if all records agree, 1 if some do not, 2 if they could not be read.
"""

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import structlog

from chassis.errors import DomainError
from chassis.proxies import ignore_proxies
from chassis.rpc import client
from chassis.settings import NonNegativeFloat, PositiveFloat, Settings, load
from chassis.telemetry import logging, otlp, semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.reconciliation.reader import Reader, Records
from checkout_service.reconciliation.rules import Kind, Mismatch
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

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
    # Behind forwarded ports, what servers are called in their certificates: `shop` for `shop-payment`.
    tls_release: str = ""


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
    async with AsyncExitStack() as stack:

        def open_stub(stub: Any, peer: str, service: str, method: str) -> Any:
            opened = client.channel(
                getattr(settings, f"{peer}_internal_addr"),
                f"shop.internal.{service}",
                timeout_seconds=_CALL_SECONDS,
                retryable=[method],
                telemetry=telemetry,
                certificates=settings.tls_folder,
                server_name=f"{settings.tls_release}-{peer}" if settings.tls_release else "",
            )
            stack.push_async_callback(opened.close)
            return stub(opened)

        has_email = settings.email_internal_addr is not None
        reader = Reader(
            open_stub(OrderJournalStub, "checkout", "OrderJournal", "ScanOrders"),
            open_stub(PaymentLedgerStub, "payment", "PaymentLedger", "ListCharges"),
            open_stub(ShipmentManifestStub, "shipping", "ShipmentManifest", "ListShipments"),
            open_stub(MailRecordsStub, "email", "MailRecords", "FindMails") if has_email else None,
        )
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
