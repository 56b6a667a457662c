"""Commands against a fake shop in the test's process, over real channels."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from chassis.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
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
from shop_cli.output.printing import console, counted
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
MESSAGE = letter_spool_pb2.Letter(letter_id="o-1", state=letter_spool_pb2.LETTER_STATE_IN_DOUBT, reason="NO_RESPONSE")
REGISTER = (
    product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server,
    cart_pb2_grpc.add_CartServiceServicer_to_server,
    currency_pb2_grpc.add_CurrencyServiceServicer_to_server,
    checkout_pb2_grpc.add_CheckoutServiceServicer_to_server,
    orders_pb2_grpc.add_OrderJournalServicer_to_server,
    letter_spool_pb2_grpc.add_LetterSpoolServicer_to_server,
    mail_records_pb2_grpc.add_MailRecordsServicer_to_server,
)
ADDRESSES = (
    "PRODUCT_CATALOG_ADDR", "CART_ADDR", "CURRENCY_ADDR", "CHECKOUT_ADDR", "CHECKOUT_INTERNAL_ADDR",
    "EMAIL_INTERNAL_ADDR",
)  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command while the fake shop serves; return its exit status, output and errors.

    It prints as to a pipe, whatever COLUMNS says.
    """
    monkeypatch.setattr(console, "width", 1_000)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["shop", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        printed = capsys.readouterr()
        return int(exited.value.code or 0), printed.out, printed.err

    async def in_thread(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(call, *arguments)

    return in_thread


class FakeShop:
    """All services that commands call. The methods that no command here calls are missing."""

    def __init__(self) -> None:
        self.address = ""
        self.cart = cart_pb2.Cart(user_id="ada")
        self.cart_is_readable = True
        self.keys: list[str] = []
        self.placed: list[checkout_pb2.PlaceOrderRequest] = []
        self.order = ORDER
        self.listed: list[orders_pb2.ListOrdersRequest] = []
        self.settled: list[orders_pb2.SettleOrderRequest] = []

    def __getattr__(self, method: str) -> None:
        """Return None for a missing method, so that a service can be registered without it."""

    async def ListProducts(self, _request: Any, _context: Any) -> product_catalog_pb2.ListProductsResponse:
        return product_catalog_pb2.ListProductsResponse(products=[CUP])

    async def SearchProducts(self, request: Any, _context: Any) -> product_catalog_pb2.SearchProductsResponse:
        return product_catalog_pb2.SearchProductsResponse(results=[CUP] if request.query == "tea" else [])

    async def GetProduct(self, request: Any, _context: Any) -> product_catalog_pb2.Product:
        if request.id != CUP.id:
            raise NotFound("no such product", reason="PRODUCT_NOT_FOUND")
        return CUP

    async def AddItem(self, request: Any, context: Any) -> empty_pb2.Empty:
        self.cart.items.append(request.item)
        self.keys += [value for key, value in context.invocation_metadata() if key == "idempotency-key"]
        return empty_pb2.Empty()

    async def GetCart(self, _request: Any, _context: Any) -> cart_pb2.Cart:
        if not self.cart_is_readable:
            raise Unavailable("the store is down", reason="STORE_UNAVAILABLE")
        return self.cart

    async def EmptyCart(self, _request: Any, _context: Any) -> empty_pb2.Empty:
        del self.cart.items[:]
        return empty_pb2.Empty()

    async def Convert(self, request: Any, _context: Any) -> money_pb2.Money:
        if request.to_code == "XXX":
            raise InvalidArgument.field("to_code", "is not supported")
        amount = getattr(request, "from")
        return money_pb2.Money(currency_code=request.to_code, units=2 * amount.units, nanos=2 * amount.nanos)

    async def PlaceOrder(self, request: Any, context: Any) -> checkout_pb2.PlaceOrderResponse:
        if request in self.placed:
            context.set_trailing_metadata((("order-replayed", "true"),))
        self.placed.append(request)
        if request.user_id == "empty-cart":
            raise FailedPrecondition("the cart is empty", reason="CART_EMPTY")
        if request.user_id == "in-progress":
            raise Unavailable("the order is in progress", reason="ORDER_IN_PROGRESS", metadata={"order_id": "o-1"})
        if request.user_id == "declined":
            raise InvalidArgument(message="no such card", reason="CARD_NUMBER_INVALID", metadata={"order_id": "o-1"})
        return checkout_pb2.PlaceOrderResponse(order=RESULT)

    async def ListOrders(self, request: Any, _context: Any) -> orders_pb2.ListOrdersResponse:
        self.listed.append(request)
        return orders_pb2.ListOrdersResponse(orders=[self.order])

    async def GetOrder(self, _request: Any, _context: Any) -> orders_pb2.GetOrderResponse:
        event = orders_pb2.OrderEvent(step="inserted", state=orders_pb2.ORDER_STATE_CHARGING, attempt=1, epoch=1)
        return orders_pb2.GetOrderResponse(order=self.order, history=[event], result=RESULT)

    async def RequeueNotifications(self, request: Any, _context: Any) -> orders_pb2.RequeueNotificationsResponse:
        requeued = self.order.dead_letters if request.order_id == self.order.order_id else []
        return orders_pb2.RequeueNotificationsResponse(requeued=requeued)

    async def SettleOrder(self, request: Any, _context: Any) -> orders_pb2.SettleOrderResponse:
        self.settled.append(request)
        return orders_pb2.SettleOrderResponse(order=self.order)

    async def ListLetters(self, _request: Any, _context: Any) -> letter_spool_pb2.ListLettersResponse:
        return letter_spool_pb2.ListLettersResponse(letters=[MESSAGE])

    async def GetLetter(self, _request: Any, _context: Any) -> letter_spool_pb2.GetLetterResponse:
        return letter_spool_pb2.GetLetterResponse(letter=MESSAGE, message="Subject: [Your] order\r\n\r\nThanks\r\n")

    async def RequeueLetters(self, _request: Any, _context: Any) -> letter_spool_pb2.RequeueLettersResponse:
        return letter_spool_pb2.RequeueLettersResponse(requeued=["o-1"])

    async def FindMails(self, request: Any, _context: Any) -> mail_records_pb2.FindMailsResponse:
        state = mail_records_pb2.MAIL_STATE_QUEUED
        mails = [mail_records_pb2.Mail(order_id=order_id, state=state) for order_id in request.order_ids]
        return mail_records_pb2.FindMailsResponse(mails=mails)


@pytest.fixture
async def shop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeShop]:
    """A fake shop whose addresses commands find in the environment."""
    fake = FakeShop()
    async with serve(*((register, fake) for register in REGISTER)) as fake.address:
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
    "orders show o-1": [r"inserted +CHARGING +1 +1", r"CUP +2 +1\.10 EUR", r"total +3\.30 EUR"],
    "orders requeue o-1": [r"\ARequeued: empty_cart\n\Z"],
    "orders requeue o-2": [r"\AThe order has no dead letters\n\Z"],
    "mail list": [r"o-1 +QUEUED +ada"],
    "mail list --unsent": [r"o-1 +IN_DOUBT +0 +NO_RESPONSE", "1 unsent message"],
    "mail list --state=in_doubt": [r"o-1 +IN_DOUBT +0 +NO_RESPONSE", "1 unsent message"],
    "mail show o-1": [r"(?m)^state +IN_DOUBT$", r"Subject: \[Your\] order\n\nThanks\n"],
    "mail requeue o-1 o-2": [r"\Ao-1 requeued\no-2 left as it is\n\Z"],
}


@pytest.mark.parametrize("command", PRINTED)
async def test_a_command_prints_its_result(run: Run, command: str) -> None:
    status, out, err = await run(*command.split())
    assert (status, err) == (0, "")
    assert [text for text in PRINTED[command] if not re.search(text, out)] == []


LIST = "`shop products list` shows all"
REFUSED = {
    "products show NONE": (1, "PRODUCT_NOT_FOUND: no such product"),
    **{
        f"cart add ada {wanted}": (1, f"PRODUCT_NOT_FOUND: no product has the id {wanted}: did you mean CUP? {LIST}")
        for wanted in ("cup", "Cups", "large")
    },
    "cart add ada submarine": (1, f"PRODUCT_NOT_FOUND: no product has the id submarine: {LIST}"),
    "convert 1 EUR XXX": (2, "INVALID_ARGUMENT: to_code: is not supported"),
    "order empty-cart": (1, "CART_EMPTY: the cart is empty"),
    "order declined": (2, "CARD_NUMBER_INVALID: no such card (order_id=o-1)"),
    "order in-progress": (4, "ORDER_IN_PROGRESS: the order is in progress (order_id=o-1)"),
}


@pytest.mark.parametrize("command", REFUSED)
async def test_a_refusal_is_one_line_with_its_reason_and_has_a_status(run: Run, shop: FakeShop, command: str) -> None:
    status, line = REFUSED[command]
    assert await run(*command.split()) == (status, "", f"{line}\n")
    assert not shop.cart.items


INVALID = {
    **{
        f"convert {amount} USD EUR": "INVALID_ARGUMENT: amount: "
        for amount in ("many", "0.0000000001", "NaN", "1e999999999", "99999999999999999999")
    },
    "products list --address localhost": "address",
    "cart add ada CUP --quantity 3000000000": "--quantity",
    "order ada --zip 3000000000": "--zip",
    "order ada --cvv 3000000000": "--cvv",
    "order ada --expires 2031-1": "expires",
    "order ada --key caf\u00e9": "idempotency-key",
    "orders list --state gone": "NEEDS_REFUND",
    "mail list --state gone": "IN_DOUBT",
    "products search \udcff": "UTF-8",
    "up --port-offset 1": "--port-offset",
}


@pytest.mark.parametrize("command", INVALID, ids=ascii)
async def test_invalid_input_is_named(run: Run, command: str) -> None:
    status, _, err = await run(*command.split())
    assert (status, INVALID[command] in err) == (2, True), err


async def test_json_output_has_the_field_names_of_the_contract(run: Run) -> None:
    _, out, _ = await run("products", "list", "--json")
    assert json.loads(out)["price_usd"] == {"currency_code": "USD", "units": "12", "nanos": 500_000_000}


async def test_an_address_without_a_listener_exits_with_status_4(run: Run, port: int) -> None:
    status, _, err = await run("products", "list", "--address", f"127.0.0.1:{port}")
    assert status == 4
    assert err == f"NOTHING_LISTENS: product-catalog does not answer at 127.0.0.1:{port}: is the shop up? (`shop up`)\n"


async def test_records_of_a_shop_that_does_not_run_are_one_line(
    run: Run, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHECKOUT", "PAYMENT", "SHIPPING", "EMAIL"):
        monkeypatch.setenv(f"{name}_INTERNAL_ADDR", f"127.0.0.1:{port}")
    status, _, errors = await run("reconcile")
    assert status == 2
    assert re.fullmatch(r"NOTHING_LISTENS: checkout, payment, shipping, email do not all answer: .*`shop .*\n", errors)


def test_one_of_a_kind_is_counted_in_the_singular() -> None:
    assert [counted(count, "order") for count in (0, 1, 2)] == ["0 orders", "1 order", "2 orders"]
    assert [counted(count, "mismatch", "mismatches") for count in (1, 2)] == ["1 mismatch", "2 mismatches"]


async def test_an_address_option_comes_before_the_environment(
    run: Run, shop: FakeShop, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRODUCT_CATALOG_ADDR", f"127.0.0.1:{port}")
    assert (await run("products", "list", "--address", shop.address))[0] == 0


async def test_adding_to_a_cart_prints_how_many_it_has(run: Run, shop: FakeShop) -> None:
    shop.cart.items.add(product_id="CUP", quantity=1)
    status, out, _ = await run("cart", "add", "ada", "CUP", "--quantity", "3")
    assert (status, out) == (0, "The cart of ada has 4 x Cup [large].\n")


async def test_an_addition_to_a_cart_that_cannot_be_read_afterwards_succeeds(run: Run, shop: FakeShop) -> None:
    shop.cart_is_readable = False
    assert await run("cart", "add", "ada", "CUP", "--quantity", "3") == (0, "3 x Cup [large] added.\n", "")


async def test_without_a_catalog_products_are_added_and_shown_by_their_ids(
    run: Run, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRODUCT_CATALOG_ADDR", f"127.0.0.1:{port}")
    status, out, err = await run("cart", "add", "ada", "CUP", "--quantity", "2")
    assert (status, out) == (0, "The cart of ada has 2 x CUP.\n")
    assert err.startswith("names and prices are unknown: product-catalog does not answer")
    _, out, _ = await run("cart", "show", "ada")
    assert [line.split() for line in out.splitlines()] == [["Product", "Quantity"], ["CUP", "2"]]


async def test_a_cart_is_shown_with_names_prices_and_its_total_in_any_currency(run: Run) -> None:
    await run("cart", "add", "ada", "CUP", "--quantity", "3")
    _, out, _ = await run("cart", "show", "ada")
    assert re.search(r"CUP +Cup \[large\] +3 +12\.50 USD +37\.50 USD", out)
    assert out.endswith("\ntotal 37.50 USD, without shipping\n")
    _, out, _ = await run("cart", "show", "ada", "--currency", "jpy")
    assert re.search(r"3 +12\.50 USD +75\.00 JPY", out)


async def test_a_cart_with_a_withdrawn_product_has_no_total(run: Run, shop: FakeShop) -> None:
    shop.cart.items.add(product_id="GONE", quantity=1)
    _, out, _ = await run("cart", "show", "ada")
    assert re.search(r"GONE +not on sale +1", out)
    assert "total" not in out


async def test_adding_to_a_cart_sends_the_idempotency_key_and_a_cart_can_be_emptied(run: Run, shop: FakeShop) -> None:
    await run("cart", "add", "ada", "CUP", "--key", "k-1")
    assert (shop.keys, len(shop.cart.items)) == (["k-1"], 1)
    await run("cart", "empty", "ada")
    assert not shop.cart.items


async def test_a_converted_amount_is_rounded_as_people_pay_it_and_exact_in_json(run: Run) -> None:
    assert (await run("convert", "6.015978438", "USD", "eur"))[1] == "12.03 EUR\n"
    _, out, _ = await run("convert", "6.015978438", "USD", "eur", "--json")
    assert json.loads(out) == {"currency_code": "EUR", "units": "12", "nanos": 31_956_876}


async def test_a_repeated_order_is_said_to_be_one(run: Run) -> None:
    first = await run("order", "ada", "--key", "k-1")
    again = await run("order", "ada", "--key", "k-1")
    assert (first[0], first[2]) == (0, "")
    assert again == (
        0,
        first[1],
        "This is a repeat: the order had been placed before, and nothing was ordered again.\n",
    )


async def test_an_order_request_contains_the_given_options(run: Run, shop: FakeShop) -> None:
    await run("order", "ada", "--currency", "usd", "--expires", "2040-07", "--zip", "12345")
    (request,) = shop.placed
    assert (request.user_currency, request.address.zip_code) == ("USD", 12345)
    card = request.credit_card
    assert (card.credit_card_number, card.credit_card_expiration_month) == ("4242 4242 4242 4242", 7)


async def test_the_order_list_can_be_filtered_by_stuck_and_state(run: Run, shop: FakeShop) -> None:
    await run("orders", "list", "--stuck", "--state", "charging")
    assert shop.listed == [orders_pb2.ListOrdersRequest(stuck=True, limit=50, states=[orders_pb2.ORDER_STATE_CHARGING])]


@pytest.mark.parametrize("outcome", ["refunded", "shipped", "dismissed"])
async def test_settling_sends_the_outcome_and_who_decided(
    run: Run, shop: FakeShop, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    monkeypatch.setenv("USER", "eve")
    status, out, _ = await run("orders", "settle", "o-1", f"--{outcome}", "R-7")
    assert (status, "o-1" in out) == (0, True)
    await run("orders", "settle", "o-1", f"--{outcome}", "R-7", "--by", "bob")
    fields: Any = {outcome: "R-7"}
    assert shop.settled == [orders_pb2.SettleOrderRequest(order_id="o-1", by=by, **fields) for by in ("eve", "bob")]


@pytest.mark.parametrize("outcomes", [[], ["--refunded", "R-7", "--dismissed", "test order"]])
async def test_settling_without_exactly_one_outcome_is_refused(run: Run, shop: FakeShop, outcomes: list[str]) -> None:
    status, _, err = await run("orders", "settle", "o-1", "--by", "bob", *outcomes)
    assert (status, shop.settled) == (2, [])
    assert "exactly one of --refunded" in err


ID = "c0e1d7f6-d34f-8494-8624-d0d2946b7bca"


async def test_on_a_narrow_terminal_a_wide_table_is_a_list_with_whole_ids(
    run: Run, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 50)
    shop.order = orders_pb2.Order(order_id=ID, state=orders_pb2.ORDER_STATE_DONE, user_id="ada", tracking_id=ID)
    _, out, _ = await run("orders", "list")
    assert out.splitlines()[0] == f"Order    {ID}"
    assert max(map(len, out.splitlines())) <= 50
    assert ID in (await run("orders", "show", ID))[1]


@pytest.mark.parametrize(
    ("width", "product"),
    [
        (50, [["CUP", "Cup", "[large]", "12.50", "USD", "kitchen"]]),
        (35, [["CUP", "Cup", "12.50", "USD", "kitchen"], ["[large]"]]),
    ],
)
async def test_a_table_that_fits_is_wrapped_between_words(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, product: list[list[str]]
) -> None:
    monkeypatch.setattr(console, "width", width)
    _, out, _ = await run("products", "list")
    assert [line.split() for line in out.splitlines()] == [["Id", "Name", "Price", "Categories"], *product]
