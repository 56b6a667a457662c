"""`python -m email_service` runs the email service; with `migrate` it updates the database's schema and exits."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Annotated

from chassis.background import in_background, repeat
from chassis.rpc.server import Service, run
from chassis.settings import Parse, SecretStr, ServiceSettings
from chassis.sql.settings import DatabaseUrl
from email_service.acceptance import Acceptance
from email_service.housekeeping import INTERVAL_SECONDS, housekeep
from email_service.metrics import MessageMetrics
from email_service.mime import Sender, parse_sender
from email_service.operators import LetterSpool, MailRecords
from email_service.product_names import ProductNames
from email_service.queue_runner import QueueRunner
from email_service.relay_url import Relay, parse_relay
from email_service.rendering import ConfirmationTemplates
from email_service.service import Confirmations, EmailService
from email_service.spool.sql import MIGRATIONS, Spool, open_spool
from shop import email_pb2_grpc, product_catalog_pb2_grpc
from shop_internal import confirmations_pb2_grpc, letter_spool_pb2_grpc, mail_records_pb2_grpc

_BASE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")


def _parse_base_url(text: str) -> str:
    if not _BASE_URL.fullmatch(text):
        raise ValueError("must be a URL such as https://shop.example")
    return text.rstrip("/")


class Settings(ServiceSettings):
    smtp_url: Annotated[Relay, Parse(parse_relay)] | None = None
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/email.db")
    email_from: Annotated[Sender, Parse(parse_sender)] = Sender("Shop", "orders@shop.example")
    product_catalog_addr: str | None = None
    storefront_url: Annotated[str, Parse(_parse_base_url)] | None = None


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Open the spool, start its background tasks, and register the servicers."""
    async with _product_names(settings, service) as names, _open_spool(settings, service) as (spool, notify):
        templates, sender = ConfirmationTemplates(settings.storefront_url), settings.email_from
        acceptance = Acceptance(templates, names, spool, sender, failpoints=service.failpoints, notify=notify)
        service.add_servicer(email_pb2_grpc.add_EmailServiceServicer_to_server, EmailService(acceptance))
        confirmations = Confirmations(acceptance)
        service.add_internal_servicer(confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, confirmations)
        service.add_internal_servicer(mail_records_pb2_grpc.add_MailRecordsServicer_to_server, MailRecords(spool))
        letter_spool = LetterSpool(spool, notify)
        service.add_internal_servicer(letter_spool_pb2_grpc.add_LetterSpoolServicer_to_server, letter_spool)
        yield


@asynccontextmanager
async def _product_names(settings: Settings, service: Service) -> AsyncIterator[ProductNames]:
    stub = None
    if settings.product_catalog_addr:
        channel = service.channel(settings.product_catalog_addr, "shop.ProductCatalogService", timeout_seconds=2)
        stub = product_catalog_pb2_grpc.ProductCatalogServiceStub(channel)
    async with aclosing(ProductNames(stub, service.telemetry)) as names:
        yield names


@asynccontextmanager
async def _open_spool(settings: Settings, service: Service) -> AsyncIterator[tuple[Spool, Callable[[], None]]]:
    """Open the spool and run its background tasks. Yield it with a callback for new messages.

    Without a relay, messages wait in the spool.
    """
    url, metrics = settings.database_url.get_secret_value(), MessageMetrics(service.telemetry)
    async with open_spool(url, service.telemetry) as spool:
        service.add_readiness_check(spool.check)
        once = partial(housekeep, spool, metrics)
        housekeeping = partial(repeat, once, INTERVAL_SECONDS, "the spool is unavailable")
        runner = _queue_runner(settings, service, spool, metrics)
        async with in_background(housekeeping, *([runner.run] if runner else [])):
            yield spool, runner.notify if runner else lambda: None
        if runner:
            await runner.close(settings.grace_seconds)


def _queue_runner(settings: Settings, service: Service, spool: Spool, metrics: MessageMetrics) -> QueueRunner | None:
    if settings.smtp_url is None:
        return None
    from email_service.smtp_relay import SmtpRelay  # noqa: PLC0415 - the SMTP client takes 1 to 5 MB

    relay = SmtpRelay(settings.smtp_url, settings.email_from.address, telemetry=service.telemetry)
    return QueueRunner(spool, relay, metrics, service.failpoints)


if __name__ == "__main__":
    run("email", Settings, build, migrations=MIGRATIONS)
