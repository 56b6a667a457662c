"""`python -m checkout_service` places orders; with `migrate` it brings the database up to date and exits."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from pydantic import Field, SecretStr

from chassis.hmac_key import load_hmac_key
from chassis.server import Service, run
from chassis.settings import DatabaseUrl, HmacKeySettings, ServiceSettings
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


class Settings(Addresses, HmacKeySettings, ServiceSettings):
    """Settings of the checkout service, read from the environment."""

    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/checkout.db")
    # `off` loses orders at a crash and charges twice at a retry: it is there to measure what the journal costs.
    journal: Literal["on", "off"] = "on"
    # How long an order is left to the worker that serves its caller; no order's safety rests on it.
    lease_seconds: float = Field(default=LEASE_SECONDS, gt=0)


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
            load_hmac_key(settings),
            points,
            lease_seconds=lease_seconds,
        )
        service.add_readiness_check(journal.check)
        service.add_servicer(checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, CheckoutService(placing))
        service.add_servicer(orders_pb2_grpc.add_OrderJournalServicer_to_server, OrderJournal(journal))
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
    run("checkout", Settings, build, migrations=MIGRATIONS)
