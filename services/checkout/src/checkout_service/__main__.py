"""`python -m checkout_service` places orders; with `migrate` it brings the database up to date and exits."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from chassis import database, hmac_key
from chassis.server import Service, run
from chassis.settings import DatabaseUrl, ServiceSettings, load
from chassis.settings import Settings as BaseSettings
from checkout_service.executor import Executor
from checkout_service.journal import LEASE_SECONDS
from checkout_service.opening import MIGRATIONS, open_journal
from checkout_service.outbox import Outbox
from checkout_service.peers import Addresses, Peers
from checkout_service.placing import Placing
from checkout_service.recovery import Recovery
from checkout_service.service import CheckoutService, OrderJournal
from checkout_service.watch import Watch
from shop import checkout_pb2_grpc
from shop_internal import orders_pb2_grpc


class DatabaseSettings(BaseSettings):
    """Where the journal is."""

    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/checkout.db")


class Settings(Addresses, DatabaseSettings, ServiceSettings):
    """What the checkout service can be told."""

    # Of the HMAC that recognises a request: one for all replicas, so it may be left out with a SQLite file alone.
    hmac_key: SecretStr | None = Field(default=None, min_length=32, validate_default=True)
    # `off` loses orders at a crash and charges twice at a retry: it is there to measure what the journal costs.
    journal: Literal["on", "off"] = "on"
    # How long an order is left to the worker that serves its caller; no order's safety rests on it.
    lease_seconds: float = Field(default=LEASE_SECONDS, gt=0)

    @field_validator("hmac_key")
    @classmethod
    def _is_shared_by_replicas(cls, key: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        url: SecretStr | None = info.data.get("database_url")
        if key is None and url is not None and database.sqlite_path(url.get_secret_value()) is None:
            raise ValueError("must be given with PostgreSQL, the same for all replicas")
        return key


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Place orders with the six peers, written down in the journal that the settings name."""
    url = settings.database_url.get_secret_value()
    keep, lease_seconds = settings.journal == "on", settings.lease_seconds
    async with open_journal(url, worker=_worker(settings), keep=keep, lease_seconds=lease_seconds) as journal:
        watch, peers, points = Watch(service.telemetry), Peers(settings, service), service.failpoints
        outbox = Outbox(journal, peers.mailer, peers.emptier, watch, points)
        executor = Executor(journal, peers.payment, peers.shipping, outbox, watch=watch, failpoints=points)
        recovery = Recovery(journal, executor, watch, service.telemetry, points)
        placing = Placing(
            journal,
            peers.quotes,
            executor,
            hmac_key.given_or_kept(settings.hmac_key, url),
            points,
            lease_seconds=lease_seconds,
        )
        service.ready_when(journal.check)
        service.add(checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, CheckoutService(placing))
        service.add(orders_pb2_grpc.add_OrderJournalServicer_to_server, OrderJournal(journal))
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(worker.work(), name=type(worker).__name__) for worker in (recovery, outbox)]
            yield
            await executor.close()
            for worker in workers:
                worker.cancel()
        await outbox.close()


def _worker(settings: Settings) -> str:
    """Names this replica. One that is restarted keeps its name, and so takes up its own orders at once."""
    return f"{socket.gethostname()}:{settings.port}"


if __name__ == "__main__":
    if sys.argv[1:] == ["migrate"]:
        database.migrate(load(DatabaseSettings).database_url.get_secret_value(), MIGRATIONS)
    else:
        run("checkout", Settings, build)
