"""The services that a storefront under test calls: real servicers that can fail or hang, and a fake checkout."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from ad_service.service import AdService
from ad_service.store import parse_ads
from cart_service.domain import Addition, CartStore
from cart_service.service import CartLines, CartService
from cart_service.store import MemoryCartStore
from chassis.errors import DomainError, NotFound
from chassis.rpc.calls import ServicerContext, metadata_value
from chassis.telemetry.instruments import Telemetry
from chassis.values.datafile import DataFile
from currency_service.service import CurrencyService
from currency_service.store import parse_rates
from product_catalog_service.service import CatalogMessages, ProductCatalogService
from product_catalog_service.store import parse_catalog
from recommendation_service.domain import Catalog, CatalogSource, Product
from recommendation_service.service import RecommendationService
from shop import (
    ad_pb2_grpc,
    address_pb2,
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    checkout_pb2_grpc,
    currency_pb2_grpc,
    money_pb2,
    order_pb2,
    product_catalog_pb2_grpc,
    recommendation_pb2_grpc,
)
from shop_internal import (
    cart_lines_pb2_grpc,
    mail_records_pb2,
    mail_records_pb2_grpc,
    orders_pb2,
    orders_pb2_grpc,
)
from shop_kit.fake_peers import FakePeer
from shop_kit.serving import serve

SERVICES = Path(__file__).parents[4] / "services"


class Peer(FakePeer):
    """A servicer of a real service that fails or hangs on request.

    Attributes:
        metadata: of the latest call.
        trailers: replace those of the servicer, if they are not empty.
        change: gets a copy of each response, which is sent then.
    """

    def __init__(self, servicer: object) -> None:
        super().__init__()
        self._servicer = servicer
        self.metadata: dict[str, str | bytes] = {}
        self.trailers: tuple[tuple[str, str], ...] = ()
        self.change: Callable[[Any], None] = lambda _: None

    def __getattr__(self, method: str) -> Callable[[Any, ServicerContext], Awaitable[Any]]:
        handle = getattr(self._servicer, method)

        async def call(request: Any, context: ServicerContext) -> Any:
            self.metadata = dict(context.invocation_metadata() or ())
            await self.begin(method)
            response = deepcopy(await handle(request, context))
            self.change(response)
            if self.trailers:
                context.set_trailing_metadata(self.trailers)
            return response

        return call

    @override
    def methods(self) -> list[str]:
        return [name for name in dir(self._servicer) if name[0].isupper()]


class _Products(CatalogSource):
    def __init__(self, path: Path) -> None:
        parsed = parse_catalog(path.read_bytes())
        self._catalog = Catalog(Product(product.id, product.categories) for product in parsed.products)

    @override
    async def current(self) -> Catalog:
        return self._catalog


class FakeCheckout(
    checkout_pb2_grpc.CheckoutServiceServicer,
    orders_pb2_grpc.OrderQuotesServicer,
    orders_pb2_grpc.OrderJournalServicer,
    mail_records_pb2_grpc.MailRecordsServicer,
):
    """Places orders of one pan for 55 USD, once per key, and records them.

    Attributes:
        requests: the orders that were placed, without repeats.
        quotes: what was quoted, also without an order.
        quote_error: raised instead of a quote.
        error: raised instead of placing an order; it gets the order's id if `error_names_order`.
        forgets_keys: place an order again when its key is repeated.
        state: of new orders.
        mail, mail_state: the MIME message of every order, and its state.
    """

    def __init__(self) -> None:
        self.requests: list[checkout_pb2.PlaceOrderRequest] = []
        self.quotes: list[checkout_pb2.PlaceOrderRequest] = []
        self.expected_totals: list[str | None] = []
        self.quote_error: DomainError | None = None
        self.error: DomainError | None = None
        self.error_names_order = False
        self.forgets_keys = False
        self.state = orders_pb2.ORDER_STATE_DONE
        self.mail = ""
        self.mail_state = mail_records_pb2.MAIL_STATE_SENT
        self.orders: dict[str, orders_pb2.GetOrderResponse] = {}
        self._by_key: dict[str, str] = {}

    @override
    async def QuoteOrder(
        self, request: checkout_pb2.PlaceOrderRequest, _context: ServicerContext
    ) -> order_pb2.OrderResult:
        self.quotes.append(request)
        if self.quote_error is not None:
            raise self.quote_error
        return _result("", request.user_currency)

    @override
    async def PlaceOrder(
        self, request: checkout_pb2.PlaceOrderRequest, context: ServicerContext
    ) -> checkout_pb2.PlaceOrderResponse:
        key = metadata_value(context, "idempotency-key") or ""
        self.expected_totals.append(metadata_value(context, "expected-total"))
        if self.error is not None and not self.error_names_order:
            raise self.error
        order_id = None if self.forgets_keys else self._by_key.get(key)
        if order_id is None:
            order_id = self._by_key[key] = self.record(request.user_id)
            self.requests.append(request)
        else:
            context.set_trailing_metadata((("order-replayed", "true"),))
        if self.error is not None:
            self.error.metadata["order_id"] = order_id
            raise self.error
        return checkout_pb2.PlaceOrderResponse(order=self.orders[order_id].result)

    def record(self, user_id: str) -> str:
        """Record an order of a user and return its id."""
        order_id, at = str(uuid.uuid4()), Timestamp()
        at.GetCurrentTime()
        result = _result(order_id)
        self.orders[order_id] = orders_pb2.GetOrderResponse(
            order=orders_pb2.Order(
                order_id=order_id,
                state=self.state,
                user_id=user_id,
                total=result.items[0].cost,
                attempt=1,
                epoch=1,
                created_at=at,
                items=[line.item for line in result.items],
            ),
            history=[orders_pb2.OrderEvent(at=at, step="inserted", state=self.state, attempt=1, epoch=1)],
            result=result,
        )
        return order_id

    @override
    async def ListOrders(
        self, request: orders_pb2.ListOrdersRequest, _context: ServicerContext
    ) -> orders_pb2.ListOrdersResponse:
        found = [found.order for found in self.orders.values() if found.order.user_id == request.user_id]
        return orders_pb2.ListOrdersResponse(orders=found)

    @override
    async def GetOrder(
        self, request: orders_pb2.GetOrderRequest, _context: ServicerContext
    ) -> orders_pb2.GetOrderResponse:
        if request.order_id not in self.orders:
            raise NotFound("there is no order with this id", reason="ORDER_NOT_FOUND")
        return self.orders[request.order_id]

    @override
    async def GetMail(
        self, request: mail_records_pb2.GetMailRequest, _context: ServicerContext
    ) -> mail_records_pb2.GetMailResponse:
        if not self.mail:
            raise NotFound("there is no such mail", reason="MAIL_NOT_FOUND")
        mail = mail_records_pb2.Mail(order_id=request.order_id, state=self.mail_state)
        return mail_records_pb2.GetMailResponse(mail=mail, message=self.mail)


def _result(order_id: str, currency_code: str = "USD") -> order_pb2.OrderResult:
    cost = money_pb2.Money(currency_code=currency_code, units=55)
    item = cart_pb2.CartItem(product_id="cast-iron-pan", quantity=1)
    return order_pb2.OrderResult(
        order_id=order_id,
        shipping_cost=money_pb2.Money(currency_code=currency_code),
        shipping_address=address_pb2.Address(
            street_address="1 Harbour Street", city="Boston", country="US", zip_code=2134
        ),
        items=[order_pb2.OrderItem(item=item, cost=cost)],
    )


@dataclass
class Backends:
    """The services that the storefront calls."""

    carts: CartStore
    catalog: Peer
    currency: Peer
    cart: Peer
    recommendation: Peer
    ad: Peer
    checkout: FakeCheckout = field(default_factory=FakeCheckout)

    def __post_init__(self) -> None:
        self.checkout_peer = Peer(self.checkout)
        self.cart_lines = Peer(CartLines(self.carts))

    @classmethod
    def create(cls) -> "Backends":
        carts = MemoryCartStore(3600)
        data = {path.name: path for path in SERVICES.glob("*/src/*/data/*")}
        catalog = DataFile(data["products.json"], lambda raw: CatalogMessages(parse_catalog(raw)))
        return cls(
            catalog=Peer(ProductCatalogService(catalog)),
            currency=Peer(CurrencyService(DataFile(data["rates.xml"], parse_rates))),
            carts=carts,
            cart=Peer(CartService(carts, Telemetry())),
            recommendation=Peer(RecommendationService(_Products(data["products.json"]))),
            ad=Peer(AdService(DataFile(data["ads.json"], parse_ads))),
        )

    async def add_to_cart(self, user_id: str, product_id: str) -> None:
        """Add a product to a cart, sold or not."""
        await self.carts.add(Addition(user_id, product_id, 1))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with serve(
            (product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, self.catalog),
            (currency_pb2_grpc.add_CurrencyServiceServicer_to_server, self.currency),
            (cart_pb2_grpc.add_CartServiceServicer_to_server, self.cart),
            (cart_lines_pb2_grpc.add_CartLinesServicer_to_server, self.cart_lines),
            (recommendation_pb2_grpc.add_RecommendationServiceServicer_to_server, self.recommendation),
            (ad_pb2_grpc.add_AdServiceServicer_to_server, self.ad),
            (checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, self.checkout_peer),
            (orders_pb2_grpc.add_OrderQuotesServicer_to_server, self.checkout_peer),
            (orders_pb2_grpc.add_OrderJournalServicer_to_server, self.checkout_peer),
            (mail_records_pb2_grpc.add_MailRecordsServicer_to_server, self.checkout_peer),
        ) as address:
            yield address
