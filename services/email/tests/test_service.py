from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import grpc
import pytest
from typing_extensions import override

from chassis.errors import InvalidArgument
from chassis.failpoints import Failpoints
from chassis.rpc.server import Service, serving
from chassis.rpc.status import from_rpc_error
from chassis.settings import load
from chassis.telemetry.instruments import Telemetry
from email_service.__main__ import Settings, build
from email_service.acceptance import Acceptance
from email_service.domain import ConfirmationEmail, Mailer, MailNotSent
from email_service.product_names import NoNames
from email_service.rendering import ConfirmationTemplates
from email_service.service import EmailService
from shop import product_catalog_pb2_grpc
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub, add_EmailServiceServicer_to_server
from shop.empty_pb2 import Empty
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop_internal import letter_spool_pb2 as spool_pb2
from shop_internal.letter_spool_pb2_grpc import LetterSpoolStub
from shop_kit import serving as testkit_serving
from shop_kit.serving import connect
from shop_kit.settings import load_settings
from shop_kit.waiting import wait_until
from shop_lab.world import smtp_relay as mail_relay
from shop_lab.world.fake_peers.reads import FakeCatalog
from shop_lab.world.smtp_relay import Inbox


def euros(units: int, nanos: int = 0) -> Money:
    return Money(currency_code="EUR", units=units, nanos=nanos)


def request(email: str = "jane@example.com") -> SendOrderConfirmationRequest:
    order = OrderResult(
        order_id="o-1",
        shipping_tracking_id="TRK-7",
        shipping_cost=euros(5, 990_000_000),
        shipping_address=Address(street_address="1 Main Street", city="Springfield", state="IL", country="US"),
        items=[OrderItem(item=CartItem(product_id="mug", quantity=2), cost=euros(20))],
    )
    return SendOrderConfirmationRequest(email=email, order=order)


@dataclass
class FakeMailer(Mailer):
    """Records e-mails in `accepted`; fails while `failing` is set."""

    accepted: list[ConfirmationEmail] = field(default_factory=list)
    failing: bool = False

    @override
    async def accept(self, emails: Sequence[ConfirmationEmail]) -> Collection[str]:
        if self.failing:
            raise MailNotSent("the mailer fails")
        self.accepted += emails
        return ()


@pytest.fixture
def mailer() -> FakeMailer:
    return FakeMailer()


@pytest.fixture
async def stub(mailer: FakeMailer) -> AsyncIterator[EmailServiceStub]:
    servicer = EmailService(Acceptance(ConfirmationTemplates(), NoNames(), mailer, Failpoints()))
    async with connect((add_EmailServiceServicer_to_server, servicer)) as channel:
        yield EmailServiceStub(channel)


async def refusal(stub: EmailServiceStub, invalid: SendOrderConfirmationRequest) -> list[str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.SendOrderConfirmation(invalid)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidArgument)
    return [violation.field for violation in error.violations]


async def test_a_confirmation_is_passed_to_the_mailer(stub: EmailServiceStub, mailer: FakeMailer) -> None:
    assert await stub.SendOrderConfirmation(request()) == Empty()
    [email] = mailer.accepted
    assert (email.recipient, email.order_id) == ("jane@example.com", "o-1")


async def test_a_confirmation_contains_the_whole_order(stub: EmailServiceStub, mailer: FakeMailer) -> None:
    await stub.SendOrderConfirmation(request())
    text = mailer.accepted[0].text
    for fact in ("o-1", "TRK-7", "2 x mug", "€20.00", "€5.99", "€25.99", "1 Main Street", "Springfield, IL"):
        assert fact in text


async def test_a_missing_order_is_rejected(stub: EmailServiceStub, mailer: FakeMailer) -> None:
    assert await refusal(stub, SendOrderConfirmationRequest(email="jane@example.com")) == ["order"]
    assert not mailer.accepted


@pytest.mark.parametrize(
    "email",
    [
        "",
        "jane",
        "jane@example.com\r\nBcc: all@example.com",
        "jane@example.com\x00",
        "jane@example.com,john@example.com",
        "jane@example.com;john@example.com",
        "a" * 243 + "@example.com",
    ],
)
async def test_anything_but_one_address_is_rejected(stub: EmailServiceStub, mailer: FakeMailer, email: str) -> None:
    assert await refusal(stub, request(email)) == ["email"]
    assert not mailer.accepted


async def test_a_missing_shipping_cost_is_rejected(stub: EmailServiceStub) -> None:
    invalid = request()
    invalid.order.ClearField("shipping_cost")
    assert await refusal(stub, invalid) == ["order.shipping_cost"]


@pytest.mark.parametrize("part", ["item", "cost"])
async def test_an_incomplete_item_is_rejected(stub: EmailServiceStub, part: Literal["item", "cost"]) -> None:
    invalid = request()
    invalid.order.items.add(item=CartItem(product_id="lamp", quantity=1), cost=euros(1)).ClearField(part)
    assert await refusal(stub, invalid) == [f"order.items[1].{part}"]


async def test_an_amount_with_mixed_signs_is_rejected(stub: EmailServiceStub) -> None:
    invalid = request()
    invalid.order.items[0].cost.CopyFrom(euros(1, -1))
    assert await refusal(stub, invalid) == ["order.items[0].cost.nanos"]


async def test_a_header_in_an_order_id_is_rejected(stub: EmailServiceStub, mailer: FakeMailer) -> None:
    invalid = request()
    invalid.order.order_id = "o-1\r\nBcc: all@example.com"
    assert await refusal(stub, invalid) == ["order.order_id"]
    assert not mailer.accepted


async def test_a_total_beyond_64_bits_is_out_of_range(stub: EmailServiceStub) -> None:
    invalid = request()
    invalid.order.items[0].cost.units = 2**63 - 1
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.SendOrderConfirmation(invalid)
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_mailer_that_fails_is_unavailable(stub: EmailServiceStub, mailer: FakeMailer) -> None:
    mailer.failing = True
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.SendOrderConfirmation(request())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SMTP_URL", "smtp://jane:hunter2/@relay"),
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


@dataclass(frozen=True)
class Running:
    """Stubs of both services of one process."""

    email: EmailServiceStub
    spool: LetterSpoolStub


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
        yield Running(EmailServiceStub(public), LetterSpoolStub(internal))


async def test_without_settings_letters_wait_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _start in range(2):
        async with serve() as running:
            await running.email.SendOrderConfirmation(request())
            (letter,) = (await running.spool.ListLetters(spool_pb2.ListLettersRequest())).letters
        assert (letter.letter_id, letter.attempts) == ("o-1", 0)
    assert (tmp_path / ".shop" / "email.db").exists()


async def test_an_email_names_products_and_links_to_the_order(sqlite_url: str) -> None:
    catalog = (product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, FakeCatalog())
    async with testkit_serving.serve(catalog) as address:
        names = {"product_catalog_addr": address, "storefront_url": "https://shop.example/"}
        async with serve(database_url=sqlite_url, **names) as running:
            await running.email.SendOrderConfirmation(request())
            text = (await running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id="o-1"))).message
    assert "2 x Stoneware mug" in text
    assert "Status    https://shop.example/orders/o-1" in text


async def test_with_a_relay_emails_are_accepted_although_it_is_down(sqlite_url: str) -> None:
    async with serve(smtp_url="smtp://127.0.0.1:1", database_url=sqlite_url) as running:
        await running.email.SendOrderConfirmation(request())
        (letter,) = (await running.spool.ListLetters(spool_pb2.ListLettersRequest())).letters
    assert (letter.letter_id, letter.recipient) == ("o-1", "jane@example.com")


async def test_without_a_relay_letters_wait_in_the_spool(spool_url: str) -> None:
    async with serve(database_url=spool_url) as running:
        await running.email.SendOrderConfirmation(request())
        found = await running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id="o-1"))
    assert found.letter.state == spool_pb2.LETTER_STATE_QUEUED
    assert "Message-ID: <o-1@shop>" in found.message


async def test_an_unknown_letter_is_not_found(sqlite_url: str) -> None:
    async with serve(database_url=sqlite_url) as running:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id="o-1"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_letters_are_listed_by_state_and_requeued(sqlite_url: str) -> None:
    async with mail_relay.relay(Inbox(rcpt_response="550 unknown")) as port:
        relay = f"smtp://127.0.0.1:{port}"
        async with serve(database_url=sqlite_url, smtp_url=relay) as running:
            stub = running.spool
            await running.email.SendOrderConfirmation(request())
            refused = spool_pb2.ListLettersRequest(states=[spool_pb2.LETTER_STATE_REFUSED])

            async def attempts() -> int:
                return sum(letter.attempts for letter in (await stub.ListLetters(refused)).letters)

            await wait_until(attempts)
            requeued = await stub.RequeueLetters(spool_pb2.RequeueLettersRequest(letter_ids=["o-1", "unknown"]))
            assert requeued.requeued == ["o-1"]

            async def attempted_again() -> bool:
                return await attempts() > 1

            await wait_until(attempted_again)


async def test_a_list_of_letters_has_a_limit(sqlite_url: str) -> None:
    async with serve(database_url=sqlite_url) as running:
        with pytest.raises(grpc.aio.AioRpcError, match="limit"):
            await running.spool.ListLetters(spool_pb2.ListLettersRequest(limit=1001))
