"""`python -m payment_service` charges cards; with `migrate` it brings the database up to date and exits."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from chassis import database, hmac_key
from chassis.server import Service, run
from chassis.settings import DatabaseUrl, ServiceSettings, load
from chassis.settings import Settings as BaseSettings
from payment_service.cards import Brand
from payment_service.domain import Till
from payment_service.service import PaymentLedger, PaymentService
from payment_service.store import MIGRATIONS, open_ledger
from shop import payment_pb2_grpc
from shop_internal import payment_ledger_pb2_grpc


class DatabaseSettings(BaseSettings):
    """Where the ledger is."""

    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/payment.db")


def _split(brands: object) -> object:
    return [brand.strip().lower() for brand in brands.split(",")] if isinstance(brands, str) else brands


class Settings(DatabaseSettings, ServiceSettings):
    """What the payment service can be told."""

    accepted_brands: Annotated[frozenset[Brand], BeforeValidator(_split), Field(min_length=1)] = frozenset(
        {Brand.VISA, Brand.MASTERCARD}
    )
    # Of the HMAC that recognises a card: one for all replicas, so it may be left out with a SQLite file alone.
    hmac_key: SecretStr | None = Field(default=None, min_length=32)


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Charge, and answer for charges, from the ledger that the settings name."""
    url = settings.database_url.get_secret_value()
    database.migrate(url, MIGRATIONS)
    async with open_ledger(url) as ledger:
        till = Till(
            ledger,
            hmac_key.given_or_kept(settings.hmac_key, url),
            settings.accepted_brands,
            lambda: datetime.now(UTC).date(),
        )
        service.ready_when(ledger.check)
        service.add(payment_pb2_grpc.add_PaymentServiceServicer_to_server, PaymentService(till, service.failpoints))
        service.add(
            payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, PaymentLedger(till, service.failpoints)
        )
        yield


if __name__ == "__main__":
    if sys.argv[1:] == ["migrate"]:
        database.migrate(load(DatabaseSettings).database_url.get_secret_value(), MIGRATIONS)
    else:
        run("payment", Settings, build)
