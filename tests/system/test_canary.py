"""No card number leaves the calls that carry it: not into a log, span, metric, error, file or database."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_kit.card_leaks import grouped, leaked_cards, random_card
from shop_kit.hostile import grpc_calls, http_requests, send
from shop_kit.reflection import full_name, methods_at
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.smoke import smoke_calls
from shop_kit.waiting import wait_until

VISA, MASTERCARD, AMEX = random_card("4"), random_card("55"), random_card("37", length=15)
MISTYPED = VISA[:-1] + str((int(VISA[-1]) + 1) % 10)
CARDS = (VISA, MASTERCARD, AMEX, MISTYPED)
CVV = 9173
SERVICES_OF_AN_ORDER = {"cart", "product-catalog", "currency", "checkout", "payment", "shipping", "email"}


async def received(call: grpc.aio.UnaryUnaryCall[Any, Any]) -> tuple[str, str]:
    """Return what a caller receives: the message, and the error with all details and the trailing metadata."""
    message = error = ""
    try:
        message = repr(await call)
    except grpc.aio.AioRpcError as failed:
        error = f"{failed.code()} {failed.details()} {failed.debug_error_string()}"
    return message, f"{error} {await call.trailing_metadata()}"


def written_by(shop: RunningShop) -> dict[str, bytes]:
    """Return what has left the processes, by where: the path of each file, and each kind of telemetry."""
    places: dict[str, bytes] = {}
    for message in shop.received.messages:
        kind = type(message).__name__
        places[kind] = places.get(kind, b"") + b"\n" + message.SerializeToString()
    files = (path for path in shop.folder.rglob("*") if path.is_file())
    return {**places, **{str(path.relative_to(shop.folder)): path.read_bytes() for path in files}}


def order_with(number: str, **changes: Any) -> PlaceOrderRequest:
    request = order_request()
    request.credit_card.credit_card_number = number
    request.credit_card.credit_card_cvv = CVV
    request.MergeFrom(PlaceOrderRequest(**changes))
    return request


def orders() -> Iterator[PlaceOrderRequest]:
    """Yield orders with cards in several spellings, and with a card number in other fields."""
    for number in (VISA, grouped(MASTERCARD, " "), AMEX + " ", MISTYPED):
        yield order_with(number)
    yield order_with(VISA, user_currency=VISA)
    for email in (VISA, f"{VISA}@", f"{VISA}@example.com"):
        yield order_with(VISA, email=email)
    for name, number in (("street_address", f"1 {grouped(MASTERCARD, '-')}"), ("city", grouped(AMEX, " "))):
        request = order_with(VISA)
        setattr(request.address, name, number)
        yield request
    expired = order_with(VISA)
    expired.credit_card.credit_card_expiration_year = 2001
    yield expired


async def place(shop: RunningShop, request: PlaceOrderRequest, **options: Any) -> tuple[str, str]:
    """Return what the customer receives."""
    await shop.fill_cart(request.user_id, lines=1)
    return await received(CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request, **options))


async def order_while_payment_fails(shop: RunningShop) -> tuple[str, ...]:
    """Place orders while payment raises an unexpected error, and while it is down; return what customers receive."""
    payment = shop.processes["payment"]
    await payment.restart(FAILPOINTS="shop.PaymentService/Charge=error")
    failed = await place(shop, order_with(MISTYPED), timeout=2)
    await payment.stop()
    refused = await place(shop, order_with(VISA), timeout=2)
    await payment.restart()
    return failed + refused


def with_text(message: Descriptor, text: str) -> Iterator[Message]:
    """Yield messages of a type, each with another one of its text fields set."""
    for found in message.fields:
        texts = [text] if found.type == FieldDescriptor.TYPE_STRING else []
        for value in with_text(found.message_type, text) if found.message_type else texts:
            yield GetMessageClass(message)(**{found.name: [value] if found.is_repeated else value})


async def put_a_card_into_every_text_field(shop: RunningShop) -> list[str]:
    """Call every public method with a card number in one text field at a time, as it is and too long.

    No service stores such an incomplete request. Return errors and metadata: a message may repeat the id in a request.
    """
    texts = []
    for name, channel in shop.channels.items():
        process = shop.processes[name]
        for method in methods_at(process.address, process.identity):
            serialize = GetMessageClass(method.input_type).SerializeToString
            call = channel.unary_unary(f"/{full_name(method)}", serialize, bytes)
            for text in (VISA, VISA * 9):
                texts += [(await received(call(request)))[1] for request in with_text(method.input_type, text)]
    assert not any("INTERNAL" in text for text in texts)
    return texts


async def send_broken_requests(shop: RunningShop) -> None:
    """Put a card number everywhere in requests of clients that follow no protocol."""
    cart, storefront = shop.processes["cart"], shop.processes["storefront"]
    for sent in grpc_calls(VISA.encode(), f"/{smoke_calls('')['cart'].method}".encode()):
        await send(cart.port, sent, cart.certificates)
    for request in http_requests(VISA):
        await send(storefront.port, request)


async def test_no_card_number_is_in_anything_that_a_shop_writes(shop: RunningShop) -> None:
    responses = [text for request in orders() for text in await place(shop, request)]
    responses += await place(shop, order_with(VISA), metadata=(("x-card", VISA),))
    responses += await order_while_payment_fails(shop)
    responses += await put_a_card_into_every_text_field(shop)
    await send_broken_requests(shop)
    # What a later order exports shows that everything before it was exported.
    earlier = len(shop.received.spans)
    await shop.order()
    await wait_until(lambda: {span.service for span in shop.received.spans[earlier:]} >= SERVICES_OF_AN_ORDER)
    places = {"responses": "\n".join(responses).encode(), **written_by(shop)}
    assert {place: found for place, data in places.items() if (found := leaked_cards(data, CARDS))} == {}
    assert leaked_cards(f"charged {grouped(VISA, ' ')}".encode("utf-16-le"), CARDS) >= {VISA}
    # The search is only worth something if the shop has written what it is to be searched for.
    for database, text in (("payment.db", b"visa"), ("email.db", b"Message-ID: ")):
        assert text in b"".join(data for place, data in places.items() if database in place)
    assert all(f".shop/log/{process.name}.log" in places for process in shop.processes)
    assert {"ExportTraceServiceRequest", "ExportMetricsServiceRequest", "ExportLogsServiceRequest"} <= places.keys()


async def test_every_line_that_a_process_prints_is_an_event_of_its_own(shop: RunningShop) -> None:
    await send_broken_requests(shop)
    for process in shop.processes:
        # A release of gRPC that no longer supports one of our GRPC_EXPERIMENTS logs a plain line at the start.
        lines = process.log_path.read_text().splitlines()
        assert {json.loads(line)["service"] for line in lines} == {process.name}
