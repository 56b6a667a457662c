"""`python -m email_service` runs the email service; `python -m email_service migrate` only migrates its database."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated

from chassis.background import Loop, in_background, repeat
from chassis.rpc.server import Service, run
from chassis.settings import Parse, SecretStr, ServiceSettings
from chassis.sql.settings import DatabaseUrl
from email_service.messages import RETENTION_DAYS
from email_service.metrics import HOUSEKEEPING_SECONDS, MessageMetrics, housekeep
from email_service.mime import Sender, parse_sender
from email_service.operators import Messages
from email_service.product_names import ProductNames
from email_service.queue_runner import QueueRunner
from email_service.rendering import ConfirmationTemplates
from email_service.service import EmailService
from email_service.smtp_relay import Relay, SmtpRelay, parse_relay
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
    async with AsyncExitStack() as stack:
        spool = await _open_spool(settings, service, stack)
        templates, names = ConfirmationTemplates(settings.storefront_url), _product_names(settings, service)
        email, messages = EmailService(templates, names, spool, settings.email_from), Messages(spool)
        service.add_servicer(email_pb2_grpc.add_EmailServiceServicer_to_server, email)
        service.add_internal_servicer(confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, email)
        service.add_internal_servicer(mail_records_pb2_grpc.add_MailRecordsServicer_to_server, messages)
        service.add_internal_servicer(letter_spool_pb2_grpc.add_LetterSpoolServicer_to_server, messages)
        yield


async def _open_spool(settings: Settings, service: Service, stack: AsyncExitStack) -> Spool:
    """Open the spool and start its background tasks. If no relay is configured, messages stay in the spool."""
    metrics = MessageMetrics(service.telemetry)
    spool = await stack.enter_async_context(open_spool(settings.database_url.get_secret_value(), service.telemetry))
    service.readiness_checks.append(spool.check)
    once = partial(housekeep, spool, metrics)
    retention = partial(spool.deletions.run, RETENTION_DAYS, service.telemetry)
    loops: list[Loop] = [partial(repeat, once, HOUSEKEEPING_SECONDS, "the spool is unavailable"), retention]
    if settings.smtp_url:
        relay = SmtpRelay(settings.smtp_url, settings.email_from.address, service.telemetry)
        runner = QueueRunner(spool, relay, metrics, service.failpoints)
        stack.push_async_callback(runner.close, settings.grace_seconds)
        loops.append(runner.run)
    await stack.enter_async_context(in_background(*loops))
    return spool


def _product_names(settings: Settings, service: Service) -> ProductNames | None:
    if not settings.product_catalog_addr:
        return None
    channel = service.channel(settings.product_catalog_addr, "shop.ProductCatalogService", timeout_seconds=2)
    return ProductNames(product_catalog_pb2_grpc.ProductCatalogServiceStub(channel), service.telemetry)


if __name__ == "__main__":
    run("email", Settings, build, migrations=MIGRATIONS)
