"""Read-only calls to cart, catalog, currency and shipping. They have no side effects, so all of them may be retried."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from chassis.cache import TtlCache
from chassis.errors import InvalidArgument, OutOfRange
from chassis.rpc.wire import address_to_wire, item_to_wire, money_from_wire, money_to_wire
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from chassis.values.orders import Address, Item
from checkout_service.domain import Cart, ProductWithdrawn, QuoteRefused
from checkout_service.peers.errors import READ_REFUSALS, reading
from checkout_service.peers.wire import lines_from_wire
from checkout_service.ports import Quotes
from shop import cart_pb2, currency_pb2, product_catalog_pb2, shipping_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.shipping_pb2_grpc import ShippingServiceStub

PRICE_TTL_SECONDS = 5.0
CONVERSION_TTL_SECONDS = 60.0
QUOTE_TTL_SECONDS = 60.0
MAX_QUOTES = 10_000

# Shipping sends this trailing metadata if a quote applies to all parcels with the same country and number of pieces.
DEPENDS_ON = ("quote-depends-on", "country,pieces")


@dataclass(eq=False)
class ShopQuotes(Quotes):
    """Reads from the public services. Prices and conversions change rarely, so they are cached for a short time.

    Shipping quotes with DEPENDS_ON are cached too, but reused only while shipping is healthy. While shipping is down,
    reading a quote calls shipping and fails, so no card is charged for an order that cannot be shipped.

    Every method raises DependencyUnavailable or PeerBroken if a peer fails, as opposed to refusing the request.

    Attributes:
        can_ship: returns whether a shipping replica is connected and healthy.
        with_generations: whether to use cart generations, which require the cart service's internal API.
    """

    _cart: CartServiceStub
    _catalog: ProductCatalogServiceStub
    _currency: CurrencyServiceStub
    _shipping: ShippingServiceStub
    telemetry: Telemetry
    _: KW_ONLY
    can_ship: Callable[[], bool]
    with_generations: bool

    def __post_init__(self) -> None:
        self._trailers = ("etag", "ordered-etag", *(("cart-generation",) if self.with_generations else ()))
        self._prices = TtlCache(self._fetch_price, PRICE_TTL_SECONDS, "prices", self.telemetry)
        self._conversions = TtlCache(self._fetch_conversion, CONVERSION_TTL_SECONDS, "conversions", self.telemetry)
        self._quotes: dict[tuple[str, int], tuple[Money, float]] = {}
        self._lookups = self.telemetry.counter(semconv.CACHE_LOOKUPS)
        self._hit, self._miss = (
            ((semconv.CACHE_NAME, "quotes"), (semconv.CACHE_RESULT, result)) for result in ("hit", "miss")
        )

    async def cart(self, user_id: str) -> Cart:
        call = self._cart.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
        with reading("cart"):
            found = await call
        trailers: dict[str, Any] = dict(await call.trailing_metadata())
        return Cart(lines_from_wire(found.items), *(trailers.get(name) or None for name in self._trailers))

    async def unit_prices(self, product_ids: Sequence[str]) -> list[Money]:
        return await self._prices.get(*product_ids)

    async def shipping(self, address: Address, lines: Sequence[Item]) -> Money:
        key = (address.country, sum(line.quantity for line in lines))
        cost, expires_at = self._quotes.get(key, (None, 0.0))
        if cost is not None and asyncio.get_running_loop().time() < expires_at and self.can_ship():
            self._lookups.add(1, self._hit)
            return cost
        self._lookups.add(1, self._miss)
        call = self._shipping.GetQuote(
            shipping_pb2.GetQuoteRequest(address=address_to_wire(address), items=map(item_to_wire, lines))
        )
        try:
            with reading("shipping", *READ_REFUSALS):
                response = await call
        except READ_REFUSALS as error:
            raise QuoteRefused(f"no shipping: {error.message}", metadata={"peer_reason": error.reason}) from error
        cost = money_from_wire(response.cost_usd)
        if DEPENDS_ON in tuple(await call.trailing_metadata() or ()):
            if key not in self._quotes and len(self._quotes) >= MAX_QUOTES:
                del self._quotes[next(iter(self._quotes))]  # evict the oldest quote
            self._quotes[key] = (cost, asyncio.get_running_loop().time() + QUOTE_TTL_SECONDS)
        return cost

    async def convert(self, amounts: Sequence[Money], to_code: str) -> list[Money]:
        # Amounts that are already in this currency need no call.
        foreign = [(amount, to_code) for amount in amounts if amount.currency_code != to_code]
        converted = iter(await self._conversions.get(*foreign))
        return [amount if amount.currency_code == to_code else next(converted) for amount in amounts]

    async def _fetch_price(self, product_id: str) -> Money:
        try:
            with reading("product-catalog", *READ_REFUSALS):
                product = await self._catalog.GetProduct(product_catalog_pb2.GetProductRequest(id=product_id))
        except READ_REFUSALS as error:
            message = "a product in the cart is not for sale"
            raise ProductWithdrawn(message, metadata={"product_id": product_id}) from error
        return money_from_wire(product.price_usd)

    async def _fetch_conversion(self, conversion: tuple[Money, str]) -> Money:
        amount, to_code = conversion
        request = currency_pb2.CurrencyConversionRequest(to_code=to_code)
        getattr(request, "from").CopyFrom(money_to_wire(amount))  # `request.from` would be a syntax error
        try:
            with reading("currency", InvalidArgument, OutOfRange):
                converted = await self._currency.Convert(request)
        except InvalidArgument as error:
            raise InvalidArgument.field("user_currency", "is not supported") from error
        return money_from_wire(converted)
