"""`python -m payment_service` charges cards; with `migrate` it brings the database up to date and exits."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from chassis import database, hmac_key
from chassis.server import Service, run
from chassis.settings import ServiceSettings, load
from chassis.settings import Settings as BaseSettings
from payment_service.cards import Brand
from payment_service.domain import Till
from payment_service.service import PaymentLedger, PaymentService
from payment_service.store import MIGRATIONS, open_ledger
from shop import payment_pb2_grpc
from shop_internal import payment_ledger_pb2_grpc


class DatabaseSettings(BaseSettings):
    """Where the ledger is: `sqlite:///file.db` or `postgresql://user:password@host/name`."""

    database_url: SecretStr = SecretStr("sqlite:///.shop/payment.db")

    @field_validator("database_url")
    @classmethod
    def _has_a_known_form(cls, url: SecretStr) -> SecretStr:
        if database.sqlite_path(url.get_secret_value()) is None:
            database.libpq_url(url.get_secret_value())
        return url


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
        till = Till(ledger, _hmac_key(settings), settings.accepted_brands, lambda: datetime.now(UTC).date())
        service.ready_when(ledger.check)
        service.add(payment_pb2_grpc.add_PaymentServiceServicer_to_server, PaymentService(till, service.failpoints))
        service.add(
            payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, PaymentLedger(till, service.failpoints)
        )
        yield


def _hmac_key(settings: Settings) -> bytes:
    if settings.hmac_key is not None:
        return settings.hmac_key.get_secret_value().encode()
    path = database.sqlite_path(settings.database_url.get_secret_value())
    if path is None:
        sys.exit("HMAC_KEY: must be given with PostgreSQL, the same for all replicas")
    return hmac_key.kept_beside(path)


if __name__ == "__main__":
    if sys.argv[1:] == ["migrate"]:
        database.migrate(load(DatabaseSettings).database_url.get_secret_value(), MIGRATIONS)
    else:
        run("payment", Settings, build)
