"""Entry point of the email service: `python -m email_service`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from chassis.server import Service, run
from chassis.settings import ServiceSettings
from email_service.clients import SmtpMailer, parse_relay
from email_service.domain import Mailer
from email_service.mime import parse_sender
from email_service.rendering import ConfirmationTemplates
from email_service.service import EmailService
from email_service.store import Outbox
from shop import email_pb2_grpc


def _validate_relay(url: SecretStr) -> SecretStr:
    parse_relay(url.get_secret_value())
    return url


def _validate_sender(text: str) -> str:
    parse_sender(text)
    return text


class Settings(ServiceSettings):
    """Settings of the email service, read from the environment."""

    smtp_url: Annotated[SecretStr, AfterValidator(_validate_relay)] | None = None
    outbox_dir: Path = Path(".shop/outbox")
    email_from: Annotated[str, AfterValidator(_validate_sender)] = "Shop <orders@shop.example>"


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    async with _open_mailer(settings) as mailer:
        service.add_servicer(
            email_pb2_grpc.add_EmailServiceServicer_to_server, EmailService(ConfirmationTemplates(), mailer)
        )
        yield


@asynccontextmanager
async def _open_mailer(settings: Settings) -> AsyncIterator[Mailer]:
    """Open the SMTP relay if SMTP_URL is set, otherwise the outbox folder."""
    sender = parse_sender(settings.email_from)
    if settings.smtp_url:
        yield SmtpMailer(parse_relay(settings.smtp_url.get_secret_value()), sender)
        return
    outbox = Outbox(settings.outbox_dir, sender)
    try:
        yield outbox
    finally:
        await outbox.close()


if __name__ == "__main__":
    run("email", Settings, build)
