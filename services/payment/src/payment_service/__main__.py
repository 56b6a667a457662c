"""`python -m payment_service` runs the service; `python -m payment_service migrate` only migrates its database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from chassis.rpc.server import Service, run
from chassis.settings import HmacKeySetting, Parse, SecretStr, ServiceSettings
from chassis.sql.settings import DatabaseUrl
from chassis.telemetry import semconv
from payment_service.cards import Brand
from payment_service.domain import PaymentProcessor
from payment_service.ledger.sql import MIGRATIONS, open_ledger
from payment_service.service import PaymentService
from shop import payment_pb2_grpc
from shop_internal import payment_ledger_pb2_grpc


def _parse_brands(text: str) -> frozenset[Brand]:
    try:
        return frozenset(Brand(brand.strip().lower()) for brand in text.split(","))
    except ValueError as error:
        raise ValueError(f"must be some of {', '.join(Brand)}, separated by commas") from error


class Settings(ServiceSettings):
    hmac_key: HmacKeySetting
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/payment.db")
    accepted_brands: Annotated[frozenset[Brand], Parse(_parse_brands)] = frozenset({Brand.VISA, Brand.MASTERCARD})


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    declines = service.telemetry.counter(semconv.DECLINES)
    async with open_ledger(settings.database_url.get_secret_value(), service.telemetry) as ledger:
        processor = PaymentProcessor(
            ledger,
            settings.hmac_key,
            settings.accepted_brands,
            lambda: datetime.now(UTC).date(),
            lambda reason: declines.add(1, ((semconv.DECLINE_REASON, reason),)),
        )
        service.readiness_checks.append(ledger.check)
        payment = PaymentService(processor, ledger)
        service.add_servicer(payment_pb2_grpc.add_PaymentServiceServicer_to_server, payment)
        service.add_internal_servicer(payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, payment)
        yield


if __name__ == "__main__":
    run("payment", Settings, build, migrations=MIGRATIONS)
