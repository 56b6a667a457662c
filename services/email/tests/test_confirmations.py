"""The internal service Confirmations over real servers, with either kind of spool."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import grpc
import psycopg
import pytest
from typing_extensions import override

from chassis.errors import InvalidArgument
from chassis.failpoints import Failpoints
from chassis.rpc.server import Service, serving
from chassis.rpc.status import from_rpc_error
from chassis.telemetry.instruments import Telemetry
from email_service.__main__ import Settings, build
from email_service.acceptance import Acceptance
from email_service.confirmations import Confirmations
from email_service.domain import ProductNames
from email_service.letters import LetterState
from email_service.mail_records import MailRecords
from email_service.mime import Sender
from email_service.product_names import NoNames
from email_service.rendering import ConfirmationTemplates
from email_service.service import EmailService
from email_service.spool.opening import open_spool
from email_service.spooling import SpooledMailer
from shop import email_pb2_grpc
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop_internal import confirmations_pb2_grpc, mail_records_pb2_grpc
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest, RefusedConfirmation
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.mail_records_pb2 import FindMailsRequest, GetMailRequest
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit.serving import connect
from shop_kit.settings import load_settings

SENDER = Sender("Shop", "orders@shop.example")
ORDER_IDS = ("o-1", "o-2", "o-3")


def confirmation(order_id: str, email: str = "jane@example.com", units: int = 20) -> SendOrderConfirmationRequest:
    euros = Money(currency_code="EUR", units=units)
    order = OrderResult(
        order_id=order_id,
        shipping_cost=Money(currency_code="EUR", units=5),
        shipping_address=Address(city="Springfield", country="US"),
        items=[OrderItem(item=CartItem(product_id="mug", quantity=2), cost=euros)],
    )
    return SendOrderConfirmationRequest(email=email, order=order)


@dataclass(frozen=True)
class Running:
    """A running email service."""

    email: EmailServiceStub
    confirmations: ConfirmationsStub
    records: MailRecordsStub

    async def accept(self, *confirmations: SendOrderConfirmationRequest) -> Sequence[RefusedConfirmation]:
        request = AcceptConfirmationsRequest(confirmations=confirmations)
        return (await self.confirmations.AcceptConfirmations(request)).refused

    async def stored(self, *order_ids: str) -> list[str]:
        """Return which of the orders have an e-mail."""
        found = await self.records.FindMails(FindMailsRequest(order_ids=order_ids))
        return [mail.order_id for mail in found.mails]

    async def text(self, order_id: str) -> str:
        return (await self.records.GetMail(GetMailRequest(order_id=order_id))).message


@asynccontextmanager
async def serve(**settings: Any) -> AsyncIterator[Running]:
    """Run the service with these settings, in the test's process."""
    loaded = load_settings(Settings, settings)
    service = Service(loaded, Telemetry())
    async with (
        serving(service, build(loaded, service)),
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as public,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.internal_port}") as internal,
    ):
        yield Running(EmailServiceStub(public), ConfirmationsStub(internal), MailRecordsStub(internal))


class CountedNames(ProductNames):
    """Counts how often the names are read."""

    def __init__(self) -> None:
        self.reads = 0

    @override
    async def current(self) -> Mapping[str, str]:
        self.reads += 1
        return {"mug": "Stoneware mug"}


@asynccontextmanager
async def connected(mailer: SpooledMailer, names: ProductNames) -> AsyncIterator[Running]:
    """Serve a mailer without the background tasks of the service."""
    acceptance = Acceptance(ConfirmationTemplates(), names, mailer, Failpoints())
    async with connect(
        (email_pb2_grpc.add_EmailServiceServicer_to_server, EmailService(acceptance)),
        (confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, Confirmations(acceptance)),
        (mail_records_pb2_grpc.add_MailRecordsServicer_to_server, MailRecords(mailer)),
    ) as channel:
        yield Running(EmailServiceStub(channel), ConfirmationsStub(channel), MailRecordsStub(channel))


@asynccontextmanager
async def open_sqlite(url: str, names: ProductNames | None = None) -> AsyncIterator[tuple[Running, Any]]:
    """Serve a spool in a file, and yield its database as well."""
    async with (
        open_spool(url) as spool,
        connected(SpooledMailer(spool, SENDER, lambda: None), names or NoNames()) as running,
    ):
        yield running, cast("Any", spool)._database


async def test_a_batch_is_one_email_for_each_order(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        assert not await running.accept(*map(confirmation, ORDER_IDS))
        assert await running.stored("o-0", *ORDER_IDS) == [*ORDER_IDS]
        assert "Message-ID: <o-2@shop>" in await running.text("o-2")


async def test_a_repeated_batch_leaves_the_first_emails_as_they_are(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        await running.accept(confirmation("o-1"), confirmation("o-2"))
        first = [await running.text(order_id) for order_id in ("o-1", "o-2")]
        assert not await running.accept(*(confirmation(order_id, units=99) for order_id in reversed(ORDER_IDS)))
        assert [await running.text(order_id) for order_id in ("o-1", "o-2")] == first
        assert await running.stored(*ORDER_IDS) == [*ORDER_IDS]


async def test_the_first_of_two_confirmations_of_one_order_is_its_email(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        await running.accept(confirmation("o-1"), confirmation("o-1", "other@example.com"))
        assert "To: jane@example.com" in await running.text("o-1")


async def test_a_confirmation_accepted_alone_is_the_email_of_a_later_batch(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        await running.email.SendOrderConfirmation(confirmation("o-1"))
        await running.accept(confirmation("o-1", "other@example.com"))
        assert "To: jane@example.com" in await running.text("o-1")


async def test_refused_confirmations_are_reported_and_the_others_are_stored(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        refused = await running.accept(
            confirmation("o-1"),
            confirmation("o-2", email="jane"),
            SendOrderConfirmationRequest(email="jane@example.com"),
            confirmation("o-3"),
            confirmation("o-4", units=2**63 - 1),
        )
        assert await running.stored(*ORDER_IDS, "o-4") == ["o-1", "o-3"]
    assert list(refused) == [
        RefusedConfirmation(index=1, reason="INVALID_ARGUMENT"),
        RefusedConfirmation(index=2, reason="INVALID_ARGUMENT"),
        RefusedConfirmation(index=4, reason="AMOUNT_OUT_OF_RANGE"),
    ]


async def test_the_log_names_the_field_of_a_refused_confirmation_but_no_address(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(database_url=sqlite_url) as running:
        await running.accept(confirmation("o-1"), confirmation("o-2", email="jane"))
    logged = [line for line in capsys.readouterr().out.splitlines() if "confirmation refused" in line]
    assert len(logged) == 1
    assert "o-2" in logged[0]
    assert "email: must be one e-mail address" in logged[0]
    assert "jane" not in logged[0]


async def test_an_email_that_the_relay_has_refused_is_reported_among_stored_ones(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running, open_spool(spool_url) as spool:
        await running.accept(confirmation("o-2"))
        (letter,) = await spool.claim(1)
        await spool.finish(letter, LetterState.REFUSED, "RELAY_550")
        refused = await running.accept(*map(confirmation, ORDER_IDS))
        assert await running.stored(*ORDER_IDS) == [*ORDER_IDS]
    assert list(refused) == [RefusedConfirmation(index=1, reason="RECIPIENT_REFUSED")]


async def test_a_batch_of_more_than_100_is_rejected(sqlite_url: str) -> None:
    async with serve(database_url=sqlite_url) as running:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await running.accept(*(confirmation(f"o-{number}") for number in range(101)))
        assert not await running.accept(*(confirmation(f"o-{number}") for number in range(100)))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(raised.value)
    assert isinstance(error, InvalidArgument)
    assert [violation.field for violation in error.violations] == ["confirmations"]


async def test_an_empty_batch_is_accepted(sqlite_url: str) -> None:
    async with serve(database_url=sqlite_url) as running:
        assert not await running.accept()


async def test_a_batch_that_a_full_spool_cannot_store_is_unavailable_and_accepted_later(sqlite_url: str) -> None:
    batch = [confirmation(f"o-{number}") for number in range(50)]
    async with open_sqlite(sqlite_url) as (running, database):
        (pages,) = (await database.run("PRAGMA page_count", {}))[0]
        await database.run(f"PRAGMA max_page_count = {pages + 2}", {})
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await running.accept(*batch)
        order_ids = [each.order.order_id for each in batch]
        assert await running.stored(*order_ids) == []
        await database.run("PRAGMA max_page_count = 1000000", {})
        assert not await running.accept(*batch)
        assert await running.stored(*order_ids) == order_ids
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert from_rpc_error(raised.value).reason == "MAIL_NOT_SENT"


async def test_a_batch_of_letters_is_one_commit(sqlite_url: str) -> None:
    executed: list[str] = []
    async with open_sqlite(sqlite_url) as (running, database):
        database._writer._connection.set_trace_callback(executed.append)
        await running.accept(*(confirmation(f"o-{number}") for number in range(20)))
    assert executed.count("COMMIT") == 1


async def test_a_batch_of_letters_is_one_transaction_on_postgresql(postgres_url: str) -> None:
    """All of its rows have the same `xmin`, the transaction that wrote them."""
    async with serve(database_url=postgres_url) as running:
        await running.accept(*(confirmation(f"o-{number}") for number in range(20)))
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        found = await (await connection.execute("SELECT xmin::text, COUNT(*) FROM letters GROUP BY xmin")).fetchall()
    assert [count for _, count in found] == [20]


async def test_the_names_of_products_are_read_once_for_a_batch(sqlite_url: str) -> None:
    names = CountedNames()
    async with open_sqlite(sqlite_url, names) as (running, _):
        await running.accept(*map(confirmation, ORDER_IDS))
        assert "2 x Stoneware mug" in await running.text("o-3")
    assert names.reads == 1
