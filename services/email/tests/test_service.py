"""Tests of the public and internal services over real channels."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.rpc.server import Service, serving
from chassis.settings import load
from chassis.sql.migrate import migrate
from chassis.telemetry.instruments import Telemetry
from email_service.__main__ import Settings, build
from email_service.failpoints import ACCEPT
from email_service.messages import ClaimedMessage, MessageState
from email_service.mime import Sender
from email_service.spool.sql import MIGRATIONS, Spool
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop_internal import letter_spool_pb2 as spool_pb2
from shop_internal import mail_records_pb2 as records_pb2
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest, RefusedConfirmation
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.letter_spool_pb2_grpc import LetterSpoolStub
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit import serving as kit_serving
from shop_kit.databases import execute
from shop_kit.failing import failure_of, rejected_fields
from shop_kit.fake_peers.reads import FakeCatalog
from shop_kit.settings import load_settings
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.waiting import wait_until

SENDER = Sender("Shop", "orders@shop.example")
ORDER_IDS = ("o-1", "o-2", "o-3")
REFUSE_THE_FIRST = """
    CREATE TRIGGER refuse BEFORE INSERT ON letters WHEN NEW.letter_id = 'o-1' BEGIN SELECT RAISE(ABORT, 'no'); END
"""


def euros(units: int, nanos: int = 0) -> Money:
    return Money(currency_code="EUR", units=units, nanos=nanos)


def confirmation(
    order_id: str = "o-1", email: str = "jane@example.com", units: int = 20
) -> SendOrderConfirmationRequest:
    order = OrderResult(
        order_id=order_id,
        shipping_tracking_id="TRK-7",
        shipping_cost=euros(5, 990_000_000),
        shipping_address=Address(street_address="1 Main Street", city="Springfield", state="IL", country="US"),
        items=[OrderItem(item=CartItem(product_id="mug", quantity=2), cost=euros(units))],
    )
    return SendOrderConfirmationRequest(email=email, order=order)


@dataclass(frozen=True)
class Running:
    """A running email service."""

    email: EmailServiceStub
    confirmations: ConfirmationsStub
    records: MailRecordsStub
    spool: LetterSpoolStub

    async def accept(self, *confirmations: SendOrderConfirmationRequest) -> Sequence[RefusedConfirmation]:
        request = AcceptConfirmationsRequest(confirmations=confirmations)
        return (await self.confirmations.AcceptConfirmations(request)).refused

    async def mails(self, *order_ids: str) -> list[records_pb2.Mail]:
        return list((await self.records.FindMails(records_pb2.FindMailsRequest(order_ids=order_ids))).mails)

    async def stored(self, *order_ids: str) -> list[str]:
        """Return which of the orders have a confirmation."""
        return [mail.order_id for mail in await self.mails(*order_ids)]

    async def text(self, order_id: str) -> str:
        return (await self.records.GetMail(records_pb2.GetMailRequest(order_id=order_id))).message

    async def messages(self, *states: spool_pb2.LetterState.ValueType) -> list[spool_pb2.Letter]:
        return list((await self.spool.ListLetters(spool_pb2.ListLettersRequest(states=states))).letters)


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
        stubs = ConfirmationsStub(internal), MailRecordsStub(internal), LetterSpoolStub(internal)
        yield Running(EmailServiceStub(public), *stubs)


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
async def running(database_url: str) -> AsyncIterator[Running]:
    """The service without a relay."""
    async with serve(database_url=database_url) as found:
        yield found


async def claim(spool: Spool) -> ClaimedMessage:
    (message,) = await spool.claim(1)
    assert await spool.begin_sending(message)
    return message


# Tests of what a confirmation contains, and of refused requests.


async def test_a_confirmation_names_products_and_links_to_the_order(sqlite_url: str) -> None:
    catalog = FakeCatalog()
    async with kit_serving.serve(catalog) as address:
        names = {"product_catalog_addr": address, "storefront_url": "https://shop.example/"}
        async with serve(database_url=sqlite_url, **names) as running:
            await running.email.SendOrderConfirmation(confirmation())
            text = await running.text("o-1")
    assert "2 x Stoneware mug" in text
    assert "Status    https://shop.example/orders/o-1" in text


def missing(request: SendOrderConfirmationRequest, part: Any) -> None:
    request.order.items.add(item=CartItem(product_id="lamp", quantity=1), cost=euros(1)).ClearField(part)


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda request: request.ClearField("order"), "order"),
        (lambda request: request.order.ClearField("shipping_cost"), "order.shipping_cost"),
        (lambda request: missing(request, "item"), "order.items[1].item"),
        (lambda request: missing(request, "cost"), "order.items[1].cost"),
        (lambda request: request.order.items[0].cost.CopyFrom(euros(1, -1)), "order.items[0].cost.nanos"),
        (lambda request: setattr(request.order, "order_id", "o-1\r\nBcc: all@example.com"), "order.order_id"),
        # Invalid addresses are covered in test_domain.py.
        (lambda request: setattr(request, "email", "jane@example.com\r\nBcc: all@example.com"), "email"),
    ],
)
async def test_an_invalid_request_is_refused_with_the_name_of_the_field(
    running: Running, spoil: Callable[[SendOrderConfirmationRequest], None], field: str
) -> None:
    request = confirmation()
    spoil(request)
    assert await rejected_fields(running.email.SendOrderConfirmation(request)) == [field]
    assert await running.messages() == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SMTP_URL", "smtp://jane:hunter2@relay:25x"),
        ("EMAIL_FROM", "hunter2 at shop"),
        ("STOREFRONT_URL", "javascript:hunter2()"),
    ],
)
def test_an_invalid_setting_fails_the_start_without_quoting_its_value(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit):
        load(Settings)
    message = capsys.readouterr().err
    assert message.startswith(f"{variable}: ")
    assert "hunter2" not in message


# Tests of batches.


async def test_a_repeated_batch_leaves_the_first_messages_as_they_are(running: Running) -> None:
    assert not await running.accept(confirmation("o-1"), confirmation("o-2"))
    first = [await running.text(order_id) for order_id in ("o-1", "o-2")]
    assert "Message-ID: <o-2@shop>" in first[1]
    assert not await running.accept(*(confirmation(order_id, units=99) for order_id in reversed(ORDER_IDS)))
    assert [await running.text(order_id) for order_id in ("o-1", "o-2")] == first
    assert await running.stored("o-0", *ORDER_IDS) == [*ORDER_IDS]


async def test_the_first_of_several_confirmations_of_one_order_is_its_message(running: Running) -> None:
    await running.accept(confirmation("o-1"), confirmation("o-1", "other@example.com"))
    await running.email.SendOrderConfirmation(confirmation("o-2"))
    await running.accept(confirmation("o-2", "other@example.com"))
    for order_id in ("o-1", "o-2"):
        assert "To: jane@example.com" in await running.text(order_id)


async def test_refused_confirmations_are_reported_and_logged_without_their_address_and_the_others_are_stored(
    capsys: pytest.CaptureFixture[str], running: Running
) -> None:
    refused = await running.accept(
        confirmation("o-1"),
        confirmation("o-2", email="jane"),
        SendOrderConfirmationRequest(email="jane@example.com"),
        confirmation("o-3"),
        confirmation("o-4", units=2**63 - 1),
    )
    assert await running.stored(*ORDER_IDS, "o-4") == ["o-1", "o-3"]
    reasons = {1: "INVALID_ARGUMENT", 2: "INVALID_ARGUMENT", 4: "AMOUNT_OUT_OF_RANGE"}
    assert [(found.index, found.reason) for found in refused] == [*reasons.items()]
    logged = [line for line in capsys.readouterr().out.splitlines() if "confirmation refused" in line]
    (of_the_second,) = [line for line in logged if "o-2" in line]
    assert "email: must be one e-mail address" in of_the_second
    assert "jane" not in "".join(logged)


async def test_a_confirmation_that_the_relay_has_refused_is_reported_among_stored_ones(
    running: Running, spool: Spool
) -> None:
    await running.accept(confirmation("o-2"))
    await spool.finish(await claim(spool), MessageState.REFUSED, "RELAY_550")
    refused = await running.accept(*map(confirmation, ORDER_IDS))
    assert await running.stored(*ORDER_IDS) == [*ORDER_IDS]
    assert list(refused) == [RefusedConfirmation(index=1, reason="RECIPIENT_REFUSED")]


async def test_a_batch_has_0_to_100_confirmations(running: Running) -> None:
    confirmations = [confirmation(f"o-{number}") for number in range(101)]
    assert await rejected_fields(running.accept(*confirmations)) == ["confirmations"]
    assert not await running.accept(*confirmations[:100])
    assert not await running.accept()


@pytest.mark.parametrize("point", ACCEPT)
async def test_a_batch_repeated_after_a_crash_is_stored_once(sqlite_url: str, point: str) -> None:
    async with serve(database_url=sqlite_url, failpoints=f"{point}=error*1") as running:
        assert (await failure_of(running.accept(*map(confirmation, ORDER_IDS))))[0] is grpc.StatusCode.INTERNAL
        assert await running.stored(*ORDER_IDS) == [*ORDER_IDS] * (point == ACCEPT[1])
        assert not await running.accept(*map(confirmation, ORDER_IDS))
        assert await running.stored(*ORDER_IDS) == [*ORDER_IDS]


async def test_a_confirmation_that_cannot_be_stored_delays_no_other(running: Running, database_url: str) -> None:
    """If one confirmation may have failed a batch, checkout sends each confirmation in a separate call."""
    execute(database_url, REFUSE_THE_FIRST)
    together = await failure_of(running.accept(*map(confirmation, ("o-1", "o-2"))))
    alone = await failure_of(running.email.SendOrderConfirmation(confirmation("o-1")))
    assert (together[0], alone[0]) == (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)
    await running.email.SendOrderConfirmation(confirmation("o-2"))
    assert await running.stored("o-1", "o-2") == ["o-2"]


async def test_a_batch_is_one_transaction_on_postgresql(postgres_url: str) -> None:
    """All rows of the batch have the same `xmin`, which identifies the transaction that wrote them."""
    async with serve(database_url=postgres_url) as running:
        await running.accept(*(confirmation(f"o-{number}") for number in range(20)))
    assert execute(postgres_url, "SELECT COUNT(*) FROM letters GROUP BY xmin::text") == [(20,)]


# Tests of the spool with and without a relay, and of its internal services.


async def test_without_settings_messages_wait_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    migrate("sqlite:///.shop/email.db", MIGRATIONS)
    for _start in range(2):
        async with serve() as running:
            await running.email.SendOrderConfirmation(confirmation())
            (message,) = await running.messages()
        assert (message.letter_id, message.attempts) == ("o-1", 0)
    assert (tmp_path / ".shop" / "email.db").exists()


async def test_messages_are_listed_by_state_and_requeued(sqlite_url: str) -> None:
    async with (
        relay(Inbox(rcpt_response="550 unknown")) as port,
        serve(database_url=sqlite_url, smtp_url=f"smtp://127.0.0.1:{port}") as running,
    ):
        await running.email.SendOrderConfirmation(confirmation())

        async def attempted(times: int) -> bool:
            refused = await running.messages(spool_pb2.LETTER_STATE_REFUSED)
            return [message.attempts >= times for message in refused] == [True]

        await wait_until(lambda: attempted(1))
        request = spool_pb2.RequeueLettersRequest(letter_ids=["o-1", "unknown"])
        assert (await running.spool.RequeueLetters(request)).requeued == ["o-1"]
        assert await wait_until(lambda: attempted(2))
        ((message,), (mail,)) = await running.messages(), await running.mails("o-1")
        assert (message.closed, mail.state) == ("relay: no such mailbox", records_pb2.MAIL_STATE_CLOSED)


async def test_an_operator_closes_a_message_which_then_needs_no_attention(running: Running, spool: Spool) -> None:
    await running.accept(confirmation("o-1"))
    await spool.finish(await claim(spool), MessageState.IN_DOUBT, "NO_RESPONSE")
    assert MessageState.IN_DOUBT in await spool.statistics()
    request = spool_pb2.CloseLettersRequest(letter_ids=["o-1", "unknown"], by="eve", reason="in the relay's log")
    assert (await running.spool.CloseLetters(request)).closed == ["o-1"]
    assert (await running.messages())[0].closed == "eve: in the relay's log"
    assert ((await running.mails("o-1"))[0].state, await spool.statistics()) == (records_pb2.MAIL_STATE_CLOSED, {})


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda running: running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id="o-1")), "NOT_FOUND"),
        (lambda running: running.spool.ListLetters(spool_pb2.ListLettersRequest(limit=1001)), "INVALID_ARGUMENT"),
        (lambda running: running.records.GetMail(records_pb2.GetMailRequest(order_id="o-1")), "NOT_FOUND"),
        (lambda running: running.records.GetMail(records_pb2.GetMailRequest()), "INVALID_ARGUMENT"),
    ],
    ids=["unknown message", "too many messages", "unknown order", "no order"],
)
async def test_unknown_ids_and_invalid_limits_are_refused(
    running: Running, call: Callable[[Running], Any], code: str
) -> None:
    assert (await failure_of(call(running)))[0].name == code


async def test_an_operator_and_a_preview_see_the_same_text_until_it_is_sent(running: Running, spool: Spool) -> None:
    await running.accept(confirmation("order/1"))
    (listed,) = await running.messages()
    shown = await running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id=listed.letter_id))
    before = await running.text("order/1")
    assert (shown.letter, shown.message) == (listed, before)
    message = await claim(spool)
    assert before.encode() == message.content
    await spool.finish(message, MessageState.SENT)
    assert await running.text("order/1") == ""


@pytest.mark.parametrize(
    ("state", "shown", "reason"),
    [
        (MessageState.SENDING, records_pb2.MAIL_STATE_QUEUED, ""),
        (MessageState.SENT, records_pb2.MAIL_STATE_SENT, ""),
        (MessageState.REFUSED, records_pb2.MAIL_STATE_FAILED, "RELAY_550"),
        (MessageState.IN_DOUBT, records_pb2.MAIL_STATE_FAILED, "RELAY_550"),
    ],
)
async def test_orders_are_found_with_the_state_of_their_confirmation(
    running: Running, spool: Spool, state: MessageState, shown: records_pb2.MailState.ValueType, reason: str
) -> None:
    await running.accept(confirmation("o-1"))
    (queued,) = await running.mails("o-1", "o-2")
    message = await claim(spool)
    if state is not MessageState.SENDING:
        await spool.finish(message, state, reason)
    (found,) = await running.mails("o-1", "o-2")
    assert (queued.state, queued.reason) == (records_pb2.MAIL_STATE_QUEUED, "")
    assert (found.order_id, found.state, found.reason) == ("o-1", shown, reason)


async def test_recipient_and_content_are_recognized_after_they_were_deleted(running: Running, spool: Spool) -> None:
    requests = {order_id: confirmation(order_id) for order_id in ("o-1", "o-2")}
    await running.accept(*requests.values())
    before = await running.mails("o-1", "o-2")
    for _ in requests:
        await spool.finish(await claim(spool), MessageState.SENT)
    after = await running.mails("o-1", "o-2")
    assert [mail.digests for mail in after] == [mail.digests for mail in before]
    assert len({value for mail in after for value in (mail.digests.recipient, mail.digests.confirmation)}) == 4
    assert {len(mail.digests.recipient) for mail in after} == {4}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ("recipient = 'eve@example.com'", "recipient"),
        ("digests = NULL, recipient = 'eve@example.com'", "recipient"),
        *((f"message = CAST('{content}' AS BLOB)", "confirmation") for content in ("Hello", "")),
    ],
)
async def test_a_message_that_was_changed_after_its_acceptance_is_recognized(
    running: Running, spool: Spool, database_url: str, change: str, differs: str
) -> None:
    await running.accept(confirmation("o-1"))
    (accepted,) = await running.mails("o-1")
    execute(database_url, f"UPDATE letters SET {change}")  # noqa: S608 - constants
    (changed,) = await running.mails("o-1")
    await spool.finish(await claim(spool), MessageState.SENT)
    (sent,) = await running.mails("o-1")
    assert changed.digests == sent.digests
    names = [field.name for field, after in sent.digests.ListFields() if after != getattr(accepted.digests, field.name)]
    assert names == [differs]


@pytest.mark.parametrize("change", ["digests = 'x'", "digests = x'ff'", "reason = x'ff'", "closed = x'ff'"])
@pytest.mark.parametrize("state", [MessageState.SENT, MessageState.REFUSED])
async def test_a_record_that_cannot_be_decoded_hides_no_other(
    running: Running, spool: Spool, database_url: str, change: str, state: MessageState
) -> None:
    await running.accept(confirmation("o-1"), confirmation("o-2"))
    await spool.finish(await claim(spool), state)
    execute(database_url, f"UPDATE letters SET {change} WHERE letter_id = 'o-1'")  # noqa: S608 - constants
    assert [bool(mail.state) for mail in await running.mails("o-1", "o-2")] == [False, True]
    assert "o-2" in [message.letter_id for message in await running.messages()]
