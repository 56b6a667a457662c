"""Runs commands against a fake shop in the test's process, over real gRPC channels."""

import asyncio
import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from chassis.errors import DomainError, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from chassis.rpc.calls import ServicerContext, metadata_of
from shop import (
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    checkout_pb2_grpc,
    currency_pb2_grpc,
    empty_pb2,
    money_pb2,
    order_pb2,
    product_catalog_pb2,
    product_catalog_pb2_grpc,
)
from shop_cli.__main__ import main
from shop_cli.output.printing import console
from shop_internal import (
    letter_spool_pb2,
    letter_spool_pb2_grpc,
    mail_records_pb2,
    mail_records_pb2_grpc,
    orders_pb2,
    orders_pb2_grpc,
)
from shop_kit.serving import serve

Run = Callable[..., Awaitable[tuple[int, str, str]]]

CUP = product_catalog_pb2.Product(
    id="CUP",
    name="Cup [large]",
    description="Holds tea.",
    price_usd=money_pb2.Money(currency_code="USD", units=12, nanos=500_000_000),
    categories=["kitchen"],
)

EUR = money_pb2.Money(currency_code="EUR", units=1, nanos=100_000_000)
LINE = order_pb2.OrderItem(item=cart_pb2.CartItem(product_id="CUP", quantity=2), cost=EUR)
RESULT = order_pb2.OrderResult(order_id="o-1", shipping_tracking_id="t-1", shipping_cost=EUR, items=[LINE, LINE])
ORDER = orders_pb2.Order(
    order_id="o-1",
    state=orders_pb2.ORDER_STATE_CHARGING,
    user_id="ada",
    attempt=2,
    stuck=True,
    outbox=["email"],
    dead_letters=["empty_cart"],
)
EVENT = orders_pb2.OrderEvent(step="inserted", state=orders_pb2.ORDER_STATE_CHARGING, attempt=1, epoch=1)
MESSAGE = letter_spool_pb2.Letter(letter_id="o-1", state=letter_spool_pb2.LETTER_STATE_IN_DOUBT, reason="NO_RESPONSE")
TEXT = "Subject: [Your] order\r\n\r\nThanks\r\n"
ADDRESSES = (
    "PRODUCT_CATALOG_ADDR", "CART_ADDR", "CURRENCY_ADDR", "CHECKOUT_ADDR", "CHECKOUT_INTERNAL_ADDR",
    "EMAIL_INTERNAL_ADDR",
)  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command against the fake shop and returns its exit status, output and errors.

    The command prints as wide as into a pipe, even if COLUMNS is set.
    """
    monkeypatch.setattr(console, "width", 1_000)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["shop", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        printed = capsys.readouterr()
        return int(exited.value.code or 0), printed.out, printed.err

    return partial(asyncio.to_thread, call)


class FakeShop:
    """All services that commands call, with one product, one cart, one order and one message.

    Attributes:
        requests: the received requests, by method.
        keys: the received idempotency keys.
        errors: errors to raise instead of responding, by method.
    """

    bases = (
        product_catalog_pb2_grpc.ProductCatalogServiceServicer,
        cart_pb2_grpc.CartServiceServicer,
        currency_pb2_grpc.CurrencyServiceServicer,
        checkout_pb2_grpc.CheckoutServiceServicer,
        orders_pb2_grpc.OrderJournalServicer,
        letter_spool_pb2_grpc.LetterSpoolServicer,
        mail_records_pb2_grpc.MailRecordsServicer,
    )

    def __init__(self) -> None:
        self.address = ""
        self.cart = cart_pb2.Cart(user_id="ada")
        self.order = ORDER
        self.requests: defaultdict[str, list[Any]] = defaultdict(list)
        self.keys: list[str] = []
        self.errors: dict[str, DomainError] = {}
        self._responses: dict[str, Callable[[Any], Message | None]] = {
            "ListProducts": lambda _: product_catalog_pb2.ListProductsResponse(products=[CUP]),
            "SearchProducts": _search,
            "GetProduct": lambda request: CUP if request.id == CUP.id else None,
            "AddItem": lambda request: self.cart.items.append(request.item),
            "GetCart": lambda _: self.cart,
            "EmptyCart": lambda _: self.cart.ClearField("items"),
            "Convert": _convert,
            "PlaceOrder": lambda _: checkout_pb2.PlaceOrderResponse(order=RESULT),
            "ListOrders": lambda _: orders_pb2.ListOrdersResponse(orders=[self.order]),
            "GetOrder": lambda _: orders_pb2.GetOrderResponse(order=self.order, history=[EVENT], result=RESULT),
            "RequeueNotifications": self._requeue,
            "SettleOrder": lambda _: orders_pb2.SettleOrderResponse(order=self.order),
            "ListLetters": lambda _: letter_spool_pb2.ListLettersResponse(letters=[MESSAGE]),
            "GetLetter": lambda _: letter_spool_pb2.GetLetterResponse(letter=MESSAGE, message=TEXT),
            "RequeueLetters": lambda _: letter_spool_pb2.RequeueLettersResponse(requeued=["o-1"]),
            "FindMails": _find_mails,
        }

    def __getattr__(self, method: str) -> Callable[[Any, ServicerContext], Awaitable[Message]]:
        async def respond(request: Any, context: ServicerContext) -> Message:
            if request in self.requests["PlaceOrder"]:
                context.set_trailing_metadata((("order-replayed", "true"),))
            self.requests[method].append(request)
            self.keys += filter(None, [metadata_of(context).get("idempotency-key")])
            if method in self.errors:
                raise self.errors[method]
            return self._responses[method](request) or empty_pb2.Empty()

        return respond

    def _requeue(self, request: Any) -> Message:
        requeued = self.order.dead_letters if request.order_id == self.order.order_id else []
        return orders_pb2.RequeueNotificationsResponse(requeued=requeued)


def _search(request: Any) -> Message:
    return product_catalog_pb2.SearchProductsResponse(results=[CUP] if request.query == "tea" else [])


def _convert(request: Any) -> Message:
    amount = getattr(request, "from")
    return money_pb2.Money(currency_code=request.to_code, units=2 * amount.units, nanos=2 * amount.nanos)


def _find_mails(request: Any) -> Message:
    state = mail_records_pb2.MAIL_STATE_QUEUED
    mails = [mail_records_pb2.Mail(order_id=order_id, state=state) for order_id in request.order_ids]
    return mail_records_pb2.FindMailsResponse(mails=mails)


@pytest.fixture
async def shop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeShop]:
    """A fake shop that commands find through environment variables."""
    fake = FakeShop()
    async with serve(fake) as fake.address:
        for variable in ADDRESSES:
            monkeypatch.setenv(variable, fake.address)
        yield fake


pytestmark = pytest.mark.usefixtures("shop")


PRODUCT = r"CUP +Cup \[large\] +12\.50 USD +kitchen"
PRINTED = {
    "products list": [PRODUCT],
    "products search tea": [PRODUCT],
    "products show CUP": [PRODUCT, "Holds tea."],
    "cart show ada": [r"\AThe cart of ada is empty\.\n\Z"],
    "order ada": [r"order id +o-1\ntracking id +t-1", r"total +3\.30 EUR"],
    "orders list": [r"o-1 +CHARGING \(stuck\) +ada .* email +empty_cart"],
    "orders show o-1": [r"inserted +CHARGING +\.\.\.:1 +1", r"CUP +2 +1\.10 EUR", r"total +3\.30 EUR"],
    "orders requeue o-1": [r"\ARequeued: empty_cart\n\Z"],
    "orders requeue o-2": [r"\AThe order has no dead letters\n\Z"],
    "mail list": [r"o-1 +QUEUED +ada"],
    "mail list --unsent": [r"o-1 +IN_DOUBT +0 +NO_RESPONSE", "1 unsent message"],
    "mail list --state=in_doubt": [r"o-1 +IN_DOUBT +0 +NO_RESPONSE", "1 unsent message"],
    "mail show o-1": [r"(?m)^state +IN_DOUBT$", r"Subject: \[Your\] order\n\nThanks\n"],
    "mail requeue o-1": [r"\Ao-1 requeued\n\Z"],
}


@pytest.mark.parametrize("command", PRINTED)
async def test_a_command_prints_its_result(run: Run, command: str) -> None:
    status, out, err = await run(*command.split())
    assert (status, err) == (0, "")
    assert [text for text in PRINTED[command] if not re.search(text, out)] == []


IN_ORDER = {"order_id": "o-1"}
FAILED = {
    "products show NONE": ("GetProduct", NotFound("no such product", reason="PRODUCT_NOT_FOUND"), 1),
    "mail send-again o-2": ("GetOrder", NotFound("there is no such order", reason="ORDER_NOT_FOUND"), 1),
    "convert 1 EUR XXX": ("Convert", InvalidArgument.field("to_code", "is not supported"), 2),
    "order a": ("PlaceOrder", FailedPrecondition("the cart is empty", reason="CART_EMPTY"), 1),
    "order b": ("PlaceOrder", InvalidArgument(message="no such card", reason="CARD_INVALID", metadata=IN_ORDER), 2),
    "order c": ("PlaceOrder", Unavailable("it is in progress", reason="ORDER_IN_PROGRESS", metadata=IN_ORDER), 4),
}


@pytest.mark.parametrize("command", FAILED)
async def test_a_failure_is_one_line_with_its_reason_and_has_a_status(run: Run, shop: FakeShop, command: str) -> None:
    method, error, expected = FAILED[command]
    shop.errors[method] = error
    details = " (order_id=o-1)" if error.metadata else ""
    assert await run(*command.split()) == (expected, "", f"{error.reason}: {error.message}{details}\n")


async def test_a_command_that_leaves_a_message_as_it_is_fails(run: Run) -> None:
    lines = "o-1 requeued\no-2 is unknown, or neither refused nor in doubt\n"
    assert await run("mail", "requeue", "o-1", "o-2") == (1, lines, "")


@pytest.mark.parametrize(("state", "deleted"), [("CHARGING", 0), ("SETTLED", 0), ("SHIPPED", 1), ("DONE", 1)])
async def test_only_a_placed_orders_message_is_sent_again(run: Run, shop: FakeShop, state: str, deleted: int) -> None:
    shop.order = orders_pb2.Order(state=orders_pb2.OrderState.Value(f"ORDER_STATE_{state}"), order_id="o-1")
    await run("mail", "send-again", "o-1")
    assert (len(shop.requests["RequeueLetters"]), len(shop.requests["RequeueNotifications"])) == (deleted, 1)


async def test_an_unknown_product_is_not_added(run: Run, shop: FakeShop) -> None:
    line = "PRODUCT_NOT_FOUND: no product has the id mug: `shop products search mug` may find it\n"
    assert await run("cart", "add", "ada", "mug") == (1, "", line)
    assert not shop.cart.items


INVALID = {
    **{
        f"convert {amount} USD EUR": "INVALID_ARGUMENT: amount: "
        for amount in ("many", "0.0000000001", "NaN", "1e999999999", "99999999999999999999")
    },
    **{f"products list --address {at}": "address: " for at in ("a", "a:0", "a:65536", "http://a:1", "::1:1", "u@a:1")},
    "cart add ada CUP --quantity 3000000000": "--quantity",
    "order ada --zip 3000000000": "--zip",
    "order ada --cvv 3000000000": "--cvv",
    "order ada --expires 2031-1": "expires",
    "order ada --key caf\u00e9": "idempotency-key",
    "orders list --state gone": "NEEDS_REFUND",
    "mail list --state gone": "IN_DOUBT",
    "products search \udcff": "UTF-8",
    "up --port-offset 1": "--port-offset",
    "reconcile --grace-minutes nan": "--grace-minutes",
}


@pytest.mark.parametrize("command", INVALID, ids=ascii)
async def test_invalid_input_is_named(run: Run, command: str) -> None:
    status, _, err = await run(*command.split())
    assert (status, INVALID[command] in err) == (2, True), err


async def test_characters_that_the_terminals_encoding_lacks_are_escaped(run: Run) -> None:
    cast("io.TextIOWrapper", sys.stdout).reconfigure(encoding="ascii")
    assert await run("cart", "show", "zo\u00eb") == (0, "The cart of zo\\xeb is empty.\n", "")


async def test_an_address_option_comes_before_the_environment_and_one_without_a_listener_is_named(
    run: Run, shop: FakeShop, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRODUCT_CATALOG_ADDR", at := f"127.0.0.1:{port}")
    line = f"NOTHING_LISTENS: product-catalog does not answer at {at}: is it down or frozen? (`shop status`)\n"
    assert await run("products", "list") == (4, "", line)
    assert (await run("products", "list", "--address", shop.address))[0] == 0


async def test_records_of_a_stopped_shop_are_one_line(run: Run, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECKOUT", "PAYMENT", "SHIPPING", "EMAIL"):
        monkeypatch.setenv(f"{name}_INTERNAL_ADDR", f"127.0.0.1:{port}")
    status, _, errors = await run("reconcile")
    assert status == 2
    assert re.fullmatch(r"NOTHING_LISTENS: checkout, payment, shipping, email do not all answer: .*`shop .*\n", errors)


async def test_a_cart_is_filled_and_shown_with_names_prices_and_total_in_any_currency(run: Run, shop: FakeShop) -> None:
    await run("cart", "add", "ada", "CUP", "--quantity", "3", "--key", "k-1")
    assert shop.keys == ["k-1"]
    _, out, _ = await run("cart", "show", "ada")
    assert re.search(r"CUP +Cup \[large\] +3 +12\.50 USD +37\.50 USD", out)
    assert out.endswith("\ntotal 37.50 USD, without shipping\n")
    _, out, _ = await run("cart", "show", "ada", "--currency", "jpy")
    assert re.search(r"3 +12\.50 USD +75 JPY", out)
    assert await run("cart", "add", "ada", "CUP") == (0, "1 x Cup [large] added.\n", "")
    shop.cart.items.add(product_id="GONE", quantity=1)
    _, out, _ = await run("cart", "show", "ada")
    assert re.search(r"GONE +not on sale +1", out)
    assert "total" not in out
    await run("cart", "empty", "ada")
    assert not shop.cart.items


async def test_without_a_catalog_products_are_added_and_shown_by_their_ids(
    run: Run, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRODUCT_CATALOG_ADDR", f"127.0.0.1:{port}")
    status, out, err = await run("cart", "add", "ada", "CUP", "--quantity", "2")
    assert (status, out) == (0, "2 x CUP added.\n")
    assert err.startswith("names and prices are unknown: product-catalog does not answer")
    _, out, _ = await run("cart", "show", "ada")
    assert [line.split() for line in out.splitlines()] == [["Product", "Quantity"], ["CUP", "2"]]


async def test_a_converted_amount_is_rounded_as_people_pay_it_and_exact_in_json(run: Run) -> None:
    assert (await run("convert", "6.015978438", "USD", "eur"))[1] == "12.03 EUR\n"
    _, out, _ = await run("convert", "6.015978438", "USD", "eur", "--json")
    assert json.loads(out) == {"currency_code": "EUR", "units": "12", "nanos": 31_956_876}


async def test_a_repeated_order_is_said_to_be_one(run: Run) -> None:
    first = await run("order", "ada", "--key", "k-1")
    line = "This is a repeat: the order had been placed before, and nothing was ordered again.\n"
    assert (first[0], first[2]) == (0, "")
    assert await run("order", "ada", "--key", "k-1") == (0, first[1], line)


async def test_an_order_request_contains_the_given_options(run: Run, shop: FakeShop) -> None:
    await run("order", "ada", "--currency", "usd", "--expires", "2040-07", "--zip", "12345")
    (request,) = shop.requests["PlaceOrder"]
    assert (request.user_currency, request.address.zip_code) == ("USD", 12345)
    card = request.credit_card
    assert (card.credit_card_number, card.credit_card_expiration_month) == ("4242 4242 4242 4242", 7)


async def test_the_order_list_can_be_filtered_by_stuck_and_state(run: Run, shop: FakeShop) -> None:
    await run("orders", "list", "--stuck", "--state", "charging")
    filtered = orders_pb2.ListOrdersRequest(stuck=True, limit=50, states=[orders_pb2.ORDER_STATE_CHARGING])
    assert shop.requests["ListOrders"] == [filtered]


@pytest.mark.parametrize("outcome", ["refunded", "shipped", "dismissed"])
async def test_settling_sends_the_outcome_and_who_decided(
    run: Run, shop: FakeShop, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    monkeypatch.setenv("USER", "eve")
    status, out, _ = await run("orders", "settle", "o-1", f"--{outcome}", "R-7")
    assert (status, "o-1" in out) == (0, True)
    await run("orders", "settle", "o-1", f"--{outcome}", "R-7", "--by", "bob")
    fields: Any = {outcome: "R-7"}
    expected = [orders_pb2.SettleOrderRequest(order_id="o-1", by=by, **fields) for by in ("eve", "bob")]
    assert shop.requests["SettleOrder"] == expected


@pytest.mark.parametrize("outcomes", [[], ["--refunded", "R-7", "--dismissed", "test order"]])
async def test_settling_without_exactly_one_outcome_is_refused(run: Run, shop: FakeShop, outcomes: list[str]) -> None:
    status, _, err = await run("orders", "settle", "o-1", "--by", "bob", *outcomes)
    assert (status, shop.requests["SettleOrder"]) == (2, [])
    assert "exactly one of --refunded" in err


ID = "c0e1d7f6-d34f-8494-8624-d0d2946b7bca"
HEADER = "Id Name Price Categories"


async def test_on_a_narrow_terminal_a_wide_table_is_a_list_with_whole_ids_and_others_wrap_between_words(
    run: Run, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 50)
    shop.order = orders_pb2.Order(order_id=ID, state=orders_pb2.ORDER_STATE_DONE, user_id="ada", tracking_id=ID)
    _, out, _ = await run("orders", "list")
    assert out.splitlines()[0] == f"Order       {ID}"
    assert max(map(len, out.splitlines())) <= 50
    assert ID in (await run("orders", "show", ID))[1]
    for width, product in ((50, ["CUP Cup [large] 12.50 USD kitchen"]), (35, ["CUP Cup 12.50 USD kitchen", "[large]"])):
        monkeypatch.setattr(console, "width", width)
        _, out, _ = await run("products", "list")
        assert [" ".join(line.split()) for line in out.splitlines()] == [HEADER, *product]
