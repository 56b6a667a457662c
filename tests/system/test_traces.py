"""The trace of an order: names, parents and attributes of its spans.

All services run in this process, built by their own `__main__` with a tracer that stores spans in memory.
"""

import importlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from chassis.rpc.server import Service, serving
from chassis.settings import load
from chassis.telemetry.instruments import Telemetry
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.ports import reserved
from shop_cli.local.processes import addresses
from shop_cli.local.workspace import Program, default_ports, discover_services, internal_name
from shop_kit.waiting import wait_until
from shop_lab.world.running_shop import order_request

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PLACE_ORDER = "shop.CheckoutService/PlaceOrder"

# These may end after the order: checkout does not wait for the e-mail, and for the cart a second only.
OUTBOX = {"shop.internal.Confirmations/AcceptConfirmations", "shop.internal.OrderedCart/RemoveAllOrdered"}

# The calls of an order of one product in a foreign currency: caller, method, callee.
HOPS = {
    ("checkout", "shop.CartService/GetCart", "cart"),
    ("checkout", "shop.ProductCatalogService/GetProduct", "product-catalog"),
    ("checkout", "shop.ShippingService/GetQuote", "shipping"),
    ("checkout", "shop.CurrencyService/Convert", "currency"),
    ("checkout", "shop.PaymentService/Charge", "payment"),
    ("checkout", "shop.ShippingService/ShipOrder", "shipping"),
    ("checkout", "shop.internal.Confirmations/AcceptConfirmations", "email"),
    ("checkout", "shop.internal.OrderedCart/RemoveAllOrdered", "cart"),
}
# Only the first e-mail of a minute reads the names of products.
NAMES_OF_PRODUCTS = ("email", "shop.ProductCatalogService/ListProducts", "product-catalog")


@dataclass
class TracedShop:
    """All services, running in this process."""

    channels: dict[str, grpc.aio.Channel]
    exporter: InMemorySpanExporter

    async def order(self, *metadata: tuple[str, str], card: str = "") -> PlaceOrderRequest:
        """Place an order of one product in EUR; return its request."""
        request = order_request()
        if card:
            request.credit_card.credit_card_number = card
        catalog = await ProductCatalogServiceStub(self.channels["product-catalog"]).ListProducts(Empty())
        item = CartItem(product_id=catalog.products[0].id, quantity=1)
        await CartServiceStub(self.channels["cart"]).AddItem(AddItemRequest(user_id=request.user_id, item=item))
        self.exporter.clear()
        await CheckoutServiceStub(self.channels["checkout"]).PlaceOrder(request, metadata=metadata)
        return request

    async def order_and_finish(self) -> None:
        """Place an order and wait for the calls that may follow its response."""
        await self.order()
        await wait_until(lambda: {span.name for span in self.spans(kind=SpanKind.CLIENT)} >= OUTBOX)

    def spans(self, name: str | None = None, kind: SpanKind | None = None) -> list[ReadableSpan]:
        """Return the finished spans of that name and kind."""
        return [
            span
            for span in self.exporter.get_finished_spans()
            if name in {None, span.name} and kind in {None, span.kind}
        ]

    def one(self, name: str, kind: SpanKind) -> ReadableSpan:
        """Return the only span of that name and kind."""
        (span,) = self.spans(name, kind)
        return span


@asynccontextmanager
async def in_process(program: Program, ports: Mapping[str, int], exporter: InMemorySpanExporter) -> AsyncIterator[None]:
    """Run a service as its `__main__` builds it, with spans in memory."""
    main = importlib.import_module(f"{program.module}.__main__")
    internal_port = ports.get(internal_name(program.name), 0)
    own = {"PORT": str(ports[program.name]), "INTERNAL_PORT": str(internal_port)}
    own |= {"HOST": "127.0.0.1", "DRAIN_SECONDS": "0", "GRACE_SECONDS": "1"}
    settings = load(main.Settings, {**os.environ, **own})
    provider = TracerProvider(resource=Resource({"service.name": program.name}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    service = Service(settings, Telemetry(tracer=provider.get_tracer("test")))
    async with serving(service, main.build(settings, service)):
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TracedShop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMAC_KEY", "k" * 32)
    exporter = InMemorySpanExporter()
    programs = discover_services()
    async with AsyncExitStack() as stack:
        names = default_ports(programs)
        ports = dict(zip(names, stack.enter_context(reserved(len(names))), strict=True))
        for variable, address in addresses(programs, ports).items():
            monkeypatch.setenv(variable, address)
        for program in programs:
            await stack.enter_async_context(in_process(program, ports, exporter))
        channels = {
            program.name: await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{ports[program.name]}"))
            for program in programs
        }
        yield TracedShop(channels, exporter)


def service_of(span: ReadableSpan) -> str:
    return str(span.resource.attributes["service.name"])


def times(span: ReadableSpan) -> tuple[int, int]:
    """Return the start and the end of a finished span."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def hops(spans: list[ReadableSpan]) -> Counter[tuple[str, str, str]]:
    """Count caller, method and callee of each call that has a client and a server span."""
    by_id = {span.context.span_id: span for span in spans}
    return Counter(
        (service_of(caller), span.name, service_of(span))
        for span in spans
        if span.kind is SpanKind.SERVER and span.parent and (caller := by_id.get(span.parent.span_id))
    )


async def test_an_order_is_one_trace(shop: TracedShop) -> None:
    await shop.order()
    assert len({span.context.trace_id for span in shop.spans()}) == 1


async def test_the_trace_of_an_order_has_every_call_once(shop: TracedShop) -> None:
    await shop.order_and_finish()
    found = hops(shop.spans())
    assert set(found) - {NAMES_OF_PRODUCTS} == HOPS
    several = {hop for hop, count in found.items() if count != 1 and hop[1] not in OUTBOX}
    assert several <= {("checkout", "shop.CurrencyService/Convert", "currency")}


async def test_client_and_server_spans_of_a_call_have_the_same_name(shop: TracedShop) -> None:
    await shop.order_and_finish()
    by_id = {span.context.span_id: span for span in shop.spans()}
    for span in shop.spans(kind=SpanKind.SERVER):
        if span.name != PLACE_ORDER:
            assert span.parent
            caller = by_id[span.parent.span_id]
            assert (caller.kind, caller.name) == (SpanKind.CLIENT, span.name)


async def test_all_spans_of_an_order_descend_from_its_server_span(shop: TracedShop) -> None:
    await shop.order_and_finish()
    root = shop.one(PLACE_ORDER, SpanKind.SERVER)
    by_id = {span.context.span_id: span for span in shop.spans()}

    def top(span: ReadableSpan) -> ReadableSpan:
        parent = by_id.get(span.parent.span_id) if span.parent else None
        return top(parent) if parent else span

    assert [span.name for span in shop.spans() if top(span) is not root] == []


async def test_a_span_lies_within_its_parent_in_time(shop: TracedShop) -> None:
    await shop.order()
    by_id = {span.context.span_id: span for span in shop.spans()}
    for span in shop.spans():
        parent = by_id.get(span.parent.span_id) if span.parent else None
        if parent and span.name not in OUTBOX:
            (began, ended), (parent_began, parent_ended) = times(span), times(parent)
            assert parent_began <= began <= ended <= parent_ended


async def test_a_server_span_has_system_method_and_status(shop: TracedShop) -> None:
    await shop.order()
    span = shop.one("shop.PaymentService/Charge", SpanKind.SERVER)
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": "shop.PaymentService/Charge",
        "rpc.response.status_code": "OK",
    }


async def test_a_client_span_also_has_the_address_of_the_server(shop: TracedShop) -> None:
    await shop.order()
    attributes = shop.one("shop.PaymentService/Charge", SpanKind.CLIENT).attributes or {}
    assert attributes["server.address"] == "127.0.0.1"
    assert isinstance(attributes["server.port"], int)


async def test_a_refused_charge_is_an_error_of_the_client_span_only(shop: TracedShop) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await shop.order(card="378282246310005")
    server = shop.one("shop.PaymentService/Charge", SpanKind.SERVER)
    client = shop.one("shop.PaymentService/Charge", SpanKind.CLIENT)
    assert server.status.status_code is StatusCode.UNSET
    assert client.status.status_code is StatusCode.ERROR
    assert (server.attributes or {})["shop.error.reason"] == "BRAND_NOT_ACCEPTED"
    assert "error.type" not in (server.attributes or {})
    assert (client.attributes or {})["rpc.response.status_code"] == "FAILED_PRECONDITION"


async def test_an_order_joins_the_trace_of_its_caller(shop: TracedShop) -> None:
    await shop.order(("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01"))
    root = shop.one(PLACE_ORDER, SpanKind.SERVER)
    assert f"{root.context.trace_id:032x}" == TRACE_ID
    assert root.parent
    assert f"{root.parent.span_id:016x}" == SPAN_ID


async def test_an_unsampled_trace_gets_no_spans(shop: TracedShop) -> None:
    await shop.order(("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-00"))
    assert shop.spans() == []


async def test_no_personal_data_of_an_order_is_in_its_trace(shop: TracedShop) -> None:
    request = await shop.order()
    exported = " ".join(str(span.to_json()) for span in shop.spans())
    secrets = [request.user_id, request.email, request.address.street_address, request.credit_card.credit_card_number]
    assert [value for value in secrets if value in exported] == []
