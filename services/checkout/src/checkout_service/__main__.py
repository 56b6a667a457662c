"""`python -m checkout_service` runs the checkout service; with `migrate` it updates the database's schema and exits."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from chassis.rpc.server import Service, run
from chassis.settings import HmacKeySettings, PositiveFloat, SecretStr, ServiceSettings
from chassis.sql.retention import Retention
from chassis.sql.settings import DatabaseUrl
from checkout_service.executor import Executor
from checkout_service.journal.opening import MIGRATIONS, open_journal
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.peers.channels import Addresses, Peers
from checkout_service.placing import OrderPlacer
from checkout_service.ports import LEASE_SECONDS, Journal
from checkout_service.queue_workers import PollTimer
from checkout_service.recovery import Recovery
from checkout_service.service import CheckoutService, OrderJournal
from shop import checkout_pb2_grpc
from shop_internal import orders_pb2_grpc


class Settings(Addresses, HmacKeySettings, ServiceSettings):
    """Settings of the checkout service, read from the environment."""

    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/checkout.db")
    # How long the worker that serves the caller has for an order before recovery takes it over. Not a safety limit.
    lease_seconds: PositiveFloat = LEASE_SECONDS
    # How long finished orders remain in the journal, and a repeated request gets its order from there.
    retention_days: PositiveFloat = 90


@asynccontextmanager
async def build(
    settings: Settings,
    service: Service,
    open_journal: Callable[..., AbstractAsyncContextManager[Journal]] = open_journal,
) -> AsyncIterator[None]:
    """Open the journal, connect to the peers, run the background loops, and register both servicers."""
    url, lease_seconds = settings.database_url.get_secret_value(), settings.lease_seconds
    async with open_journal(
        url, service.telemetry, worker=_worker_name(settings), lease_seconds=lease_seconds
    ) as journal:
        metrics, peers, failpoints = OrderMetrics(service.telemetry), Peers(settings, service), service.failpoints
        poll_timer = PollTimer()
        outbox = Outbox(
            journal,
            peers.confirmations,
            peers.cart_clearer,
            poll_timer,
            metrics=metrics,
            telemetry=service.telemetry,
            failpoints=failpoints,
        )
        executor = Executor(
            journal,
            peers.payment,
            peers.shipping,
            outbox,
            metrics=metrics,
            failpoints=failpoints,
            lease_seconds=lease_seconds,
        )
        recovery = Recovery(
            journal, executor, poll_timer, metrics=metrics, telemetry=service.telemetry, failpoints=failpoints
        )
        retention = Retention(journal.delete_old, days=settings.retention_days, rows="orders")
        placer = OrderPlacer(journal, peers.quotes, executor, settings.hmac_keys, failpoints)
        service.add_readiness_check(journal.check)
        service.add_servicer(checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, CheckoutService(placer))
        service.add_internal_servicer(
            orders_pb2_grpc.add_OrderJournalServicer_to_server, OrderJournal(journal, retention)
        )
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(loop.run(), name=type(loop).__name__) for loop in (recovery, outbox, retention)]
            yield
            await executor.close()
            for loop in loops:
                loop.cancel()
        await outbox.close()


def _worker_name(settings: Settings) -> str:
    """Return the name of this replica: the same after a restart, so that it takes up its own orders at once."""
    return f"{socket.gethostname()}:{settings.port}"


if __name__ == "__main__":
    run("checkout", Settings, build, migrations=MIGRATIONS)
