"""`python -m checkout_service` runs the service; `python -m checkout_service migrate` only migrates its database."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from chassis.background import in_background, log_errors, repeat
from chassis.rpc.server import Service, run
from chassis.settings import HmacKeySetting, PositiveFloat, SecretStr, ServiceSettings
from chassis.sql.settings import DatabaseUrl
from checkout_service.executor import Executor
from checkout_service.journal.opening import MIGRATIONS, open_journal
from checkout_service.journal.sql import ANNOUNCE_SECONDS, Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.peers.channels import Addresses, Peers
from checkout_service.placing import OrderPlacer
from checkout_service.ports import EMAIL, EMPTY_CART, LEASE_SECONDS
from checkout_service.queue_workers import PollTimer
from checkout_service.recovery import Recovery
from checkout_service.service import CheckoutService, OrderJournal
from shop.checkout_pb2_grpc import add_CheckoutServiceServicer_to_server
from shop_internal.orders_pb2_grpc import add_OrderJournalServicer_to_server, add_OrderQuotesServicer_to_server


class Settings(Addresses, ServiceSettings):
    hmac_key: HmacKeySetting
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/checkout.db")
    # How long a worker owns an order before recovery may take it over. Correctness does not depend on this value.
    lease_seconds: PositiveFloat = LEASE_SECONDS
    # How long the journal keeps finished orders. Until then, a repeated request gets the original response.
    retention_days: PositiveFloat = 90


@asynccontextmanager
async def build(
    settings: Settings,
    service: Service,
    open_journal: Callable[..., AbstractAsyncContextManager[Journal]] = open_journal,
) -> AsyncIterator[None]:
    """Open the journal, connect to the peers, register the servicers, and run the background loops."""
    url, lease_seconds = settings.database_url.get_secret_value(), settings.lease_seconds
    telemetry, failpoints = service.telemetry, service.failpoints
    # Use a name that stays the same across restarts, so that a restarted replica can resume its own orders at once.
    worker = f"{socket.gethostname()}:{settings.port}"
    async with open_journal(url, telemetry, worker=worker, lease_seconds=lease_seconds) as journal:
        metrics, peers, poll_timer = OrderMetrics(telemetry), Peers(settings, service), PollTimer()
        senders = {EMAIL: peers.email.confirm, EMPTY_CART: peers.cart.remove_ordered}
        outbox = Outbox(journal, senders, poll_timer, metrics, telemetry, failpoints)
        executor = Executor(journal, peers.payment, peers.shipping, outbox, metrics, failpoints, lease_seconds)
        recovery = Recovery(journal, executor, poll_timer, metrics, telemetry, failpoints)
        retention = partial(journal.deletions.run, settings.retention_days, telemetry)
        placer = OrderPlacer(journal, peers.quotes, executor, settings.hmac_key, failpoints)
        service.readiness_checks.append(journal.check)
        orders = CheckoutService(placer)
        service.add_servicer(add_CheckoutServiceServicer_to_server, orders)
        service.add_internal_servicer(add_OrderQuotesServicer_to_server, orders)
        operators = OrderJournal(journal, executor)
        service.add_internal_servicer(add_OrderJournalServicer_to_server, operators)
        announce = partial(repeat, journal.announce, ANNOUNCE_SECONDS, "this replica cannot announce itself")
        # Release the leases that this replica held before a restart. Do it now, before it takes new leases.
        await log_errors(journal.release_own(), "leases not released, they will expire")
        async with in_background(recovery.run, outbox.run, retention, announce):
            yield
            await executor.close()
        await outbox.close()


if __name__ == "__main__":
    run("checkout", Settings, build, migrations=MIGRATIONS)
