"""`python -m payment_service` runs the payment service; with `migrate` it updates the database's schema and exits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from chassis import semconv
from chassis.server import Service, run
from chassis.settings import DatabaseUrl, HmacKeySettings, ServiceSettings
from payment_service.cards import Brand
from payment_service.domain import PaymentProcessor
from payment_service.ledger.opening import MIGRATIONS, open_ledger
from payment_service.service import PaymentLedger, PaymentService
from shop import payment_pb2_grpc
from shop_internal import payment_ledger_pb2_grpc


def _split(brands: object) -> object:
    return [brand.strip().lower() for brand in brands.split(",")] if isinstance(brands, str) else brands


class Settings(HmacKeySettings, ServiceSettings):
    """Settings of the payment service, read from the environment."""

    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/payment.db")
    accepted_brands: Annotated[frozenset[Brand], BeforeValidator(_split), Field(min_length=1)] = frozenset(
        {Brand.VISA, Brand.MASTERCARD}
    )


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Open the ledger and register both servicers."""
    declines = service.telemetry.counter(semconv.DECLINES)
    async with open_ledger(settings.database_url.get_secret_value(), service.telemetry) as ledger:
        processor = PaymentProcessor(
            ledger,
            settings.hmac_keys,
            settings.accepted_brands,
            lambda: datetime.now(UTC).date(),
            lambda reason: declines.add(1, ((semconv.DECLINE_REASON, reason),)),
        )
        service.add_readiness_check(ledger.check)
        service.add_servicer(
            payment_pb2_grpc.add_PaymentServiceServicer_to_server, PaymentService(processor, service.failpoints)
        )
        service.add_internal_servicer(
            payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, PaymentLedger(processor, service.failpoints)
        )
        yield


if __name__ == "__main__":
    run("payment", Settings, build, migrations=MIGRATIONS)
