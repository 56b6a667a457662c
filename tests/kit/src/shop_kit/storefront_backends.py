"""The services that a storefront under test calls: real servicers that can fail or hang, and a fake checkout."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from ad_service.service import AdService
from ad_service.store import parse_ads
from cart_service.domain import Addition
from cart_service.service import CartService
from cart_service.store import MemoryCartStore
from chassis.errors import DeadlineExceeded, DomainError, NotFound
from chassis.rpc.calls import ServicerContext, metadata_of
from chassis.telemetry.instruments import Telemetry
from chassis.values.datafile import DataFile
from currency_service.service import CurrencyService
from currency_service.store import parse_rates
from product_catalog_service.service import CatalogMessages, ProductCatalogService
from product_catalog_service.store import parse_catalog
from recommendation_service.domain import Catalog, Product
from recommendation_service.service import RecommendationService
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.checkout_pb2 import PlaceOrderRequest, PlaceOrderResponse
from shop.checkout_pb2_grpc import CheckoutServiceServicer
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop_internal.mail_records_pb2 import MAIL_STATE_SENT, GetMailRequest, GetMailResponse, Mail
from shop_internal.mail_records_pb2_grpc import MailRecordsServicer
from shop_internal.orders_pb2 import (
    ORDER_STATE_DONE,
    GetOrderRequest,
    GetOrderResponse,
    ListOrdersRequest,
    ListOrdersResponse,
    Order,
    OrderEvent,
)
from shop_internal.orders_pb2_grpc import OrderJournalServicer, OrderQuotesServicer
from shop_kit.fake_peers import FakePeer
from shop_kit.serving import serve

SERVICES = Path(__file__).parents[4] / "services"
DATA = {path.name: path for path in SERVICES.glob("*/src/*/data/*")}


class Peer(FakePeer):
    """A servicer of a real service that fails or hangs on request.

    Attributes:
        metadata: of the latest call.
        trailers: replace those of the servicer, if they are not empty.
        change: gets a copy of each response, which is sent then.
    """

    def __init__(self, servicer: object) -> None:
        super().__init__()
        self.servicer, self.bases, self.hangs = servicer, type(servicer).__mro__, False
        self.metadata: dict[str, str | bytes] = {}
        self.trailers: tuple[tuple[str, str], ...] = ()
        self.change: Callable[[Any], None] = lambda _: None

    def __getattr__(self, method: str) -> Callable[[Any, ServicerContext], Awaitable[Any]]:
        handle = getattr(self.servicer, method)

        async def call(request: Any, context: ServicerContext) -> Any:
            self.metadata = dict(context.invocation_metadata() or ())
            if self.hangs and context.time_remaining() is not None:
                raise DeadlineExceeded("hangs")
            await self.begin(method)
            response = deepcopy(await handle(request, context))
            self.change(response)
            if self.trailers:
                context.set_trailing_metadata(self.trailers)
            return response

        return call

    def hang(self) -> None:
        """Make calls end at their deadlines, without the wait for them. Calls without a deadline never end."""
        self.hangs = all(self.hold(method) for method in self.methods())

    @override
    def methods(self) -> list[str]:
        return [name for name in dir(self.servicer) if name[0].isupper()]


class FakeCheckout(CheckoutServiceServicer, OrderQuotesServicer, OrderJournalServicer, MailRecordsServicer):
    """Places orders of one pan for 55 USD, once per key, and records them.

    Attributes:
        requests: the orders that were placed, without repeats.
        quotes: what was quoted, also without an order.
        quote_error: raised instead of a quote.
        error: raised instead of placing an order; it gets the order's id if `error_names_order`.
        state: of new orders.
        mail, mail_state: the MIME message of every order, and its state.
    """

    def __init__(self) -> None:
        self.requests: list[PlaceOrderRequest] = []
        self.quotes: list[PlaceOrderRequest] = []
        self.expected_totals: list[str | None] = []
        self.quote_error: DomainError | None = None
        self.error: DomainError | None = None
        self.error_names_order = False
        self.state = ORDER_STATE_DONE
        self.mail = ""
        self.mail_state = MAIL_STATE_SENT
        self.orders: dict[str, GetOrderResponse] = {}
        self._by_key: dict[str, str] = {}

    @override
    async def QuoteOrder(self, request: PlaceOrderRequest, _context: ServicerContext) -> OrderResult:
        self.quotes.append(request)
        if self.quote_error is not None:
            raise self.quote_error
        return _result("", request.user_currency)

    @override
    async def PlaceOrder(self, request: PlaceOrderRequest, context: ServicerContext) -> PlaceOrderResponse:
        key = metadata_of(context).get("idempotency-key") or ""
        self.expected_totals.append(metadata_of(context).get("expected-total"))
        if self.error is not None and not self.error_names_order:
            raise self.error
        order_id = self._by_key.get(key)
        if order_id is None:
            order_id = self._by_key[key] = self.record(request.user_id)
            self.requests.append(request)
        else:
            context.set_trailing_metadata((("order-replayed", "true"),))
        if self.error is not None:
            self.error.metadata["order_id"] = order_id
            raise self.error
        return PlaceOrderResponse(order=self.orders[order_id].result)

    def record(self, user_id: str) -> str:
        """Record an order of a user and return its id."""
        order_id, at = str(uuid.uuid4()), Timestamp()
        at.GetCurrentTime()
        result = _result(order_id)
        self.orders[order_id] = GetOrderResponse(
            order=Order(
                order_id=order_id,
                state=self.state,
                user_id=user_id,
                total=result.items[0].cost,
                attempt=1,
                epoch=1,
                created_at=at,
                items=[line.item for line in result.items],
            ),
            history=[OrderEvent(at=at, step="inserted", state=self.state, attempt=1, epoch=1)],
            result=result,
        )
        return order_id

    @override
    async def ListOrders(self, request: ListOrdersRequest, _context: ServicerContext) -> ListOrdersResponse:
        found = [found.order for found in self.orders.values() if found.order.user_id == request.user_id]
        return ListOrdersResponse(orders=found)

    @override
    async def GetOrder(self, request: GetOrderRequest, _context: ServicerContext) -> GetOrderResponse:
        if request.order_id not in self.orders:
            raise NotFound("there is no order with this id", reason="ORDER_NOT_FOUND")
        return self.orders[request.order_id]

    @override
    async def GetMail(self, request: GetMailRequest, _context: ServicerContext) -> GetMailResponse:
        if not self.mail:
            raise NotFound("there is no such mail", reason="MAIL_NOT_FOUND")
        mail = Mail(order_id=request.order_id, state=self.mail_state)
        return GetMailResponse(mail=mail, message=self.mail)


def _result(order_id: str, currency_code: str = "USD") -> OrderResult:
    cost = Money(currency_code=currency_code, units=55)
    item = CartItem(product_id="cast-iron-pan", quantity=1)
    return OrderResult(
        order_id=order_id,
        shipping_cost=Money(currency_code=currency_code),
        shipping_address=Address(street_address="1 Harbour Street", city="Boston", country="US", zip_code=2134),
        items=[OrderItem(item=item, cost=cost)],
    )


@cache
def catalog_file() -> DataFile[CatalogMessages]:
    """Return the catalog that all backends share: indexing it takes longer than a request."""
    return DataFile(DATA["products.json"], lambda raw: CatalogMessages(parse_catalog(raw)))


class Backends:
    """The services that the storefront calls."""

    def __init__(self) -> None:
        catalog, rates = catalog_file(), DataFile(DATA["rates.xml"], parse_rates)

        async def read_products() -> Catalog:
            return Catalog(Product(product.id, product.categories) for product in catalog.value.catalog.products)

        self.carts = MemoryCartStore(3600)
        self.checkout = FakeCheckout()  # type: ignore[abstract] # it has the methods that the storefront calls
        self.checkout_peer = Peer(self.checkout)
        self.catalog = Peer(ProductCatalogService(catalog))
        self.currency = Peer(CurrencyService(lambda: rates.value))
        self.cart = Peer(CartService(self.carts, Telemetry()))
        self.recommendation = Peer(RecommendationService(read_products))
        self.ad = Peer(AdService(DataFile(DATA["ads.json"], parse_ads)))

    async def add_to_cart(self, user_id: str, product_id: str) -> None:
        """Add a product to a cart, sold or not."""
        await self.carts.add(Addition(user_id, product_id, 1))

    def serving(self) -> AbstractAsyncContextManager[str]:
        """Serve all of them on one port while in the context, which is its address."""
        peers = [peer for peer in vars(self).values() if isinstance(peer, Peer)]
        return serve(*peers)
