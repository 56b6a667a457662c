"""Reads cart, catalog, currency and shipping. Reads have no effect, so every call may be retried."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from chassis.cache import TtlCache
from chassis.errors import InvalidArgument, OutOfRange
from chassis.rpc.wire import money_from_wire, money_to_wire
from chassis.telemetry.instruments import Telemetry
from chassis.values.addresses import Address
from chassis.values.money import Money
from checkout_service.domain import Cart, CartLine, ProductWithdrawn
from checkout_service.peers.errors import READ_REFUSALS, reading
from checkout_service.peers.shipping_quotes import ShippingQuotes
from checkout_service.peers.wire import lines_from_wire
from checkout_service.ports import Quotes
from shop import cart_pb2, currency_pb2, product_catalog_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub

PRICE_TTL_SECONDS = 5.0
CONVERSION_TTL_SECONDS = 60.0


class ShopQuotes(Quotes):
    """Reads by the contract. Prices and conversions change rarely, so they are cached for a short time.

    Every failure that is not a peer's refusal raises DependencyUnavailable or PeerBroken.

    Args:
        with_generations: whether carts have generations: whether the cart service has its internal service.
    """

    def __init__(
        self,
        cart: CartServiceStub,
        catalog: ProductCatalogServiceStub,
        currency: CurrencyServiceStub,
        shipping: ShippingQuotes,
        telemetry: Telemetry,
        *,
        with_generations: bool,
    ) -> None:
        self._cart = cart
        self._catalog = catalog
        self._currency = currency
        self._shipping = shipping
        self._trailers = ("etag", "ordered-etag", "cart-generation") if with_generations else ("etag", "ordered-etag")
        self._prices = TtlCache(self._fetch_price, PRICE_TTL_SECONDS, "prices", telemetry)
        self._conversions = TtlCache(self._fetch_conversion, CONVERSION_TTL_SECONDS, "conversions", telemetry)

    @override
    async def cart(self, user_id: str) -> Cart:
        call = self._cart.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
        with reading("cart"):
            found = await call
        trailers: dict[str, Any] = dict(await call.trailing_metadata())
        return Cart(lines_from_wire(found.items), *(trailers.get(name) or None for name in self._trailers))

    @override
    async def unit_prices(self, product_ids: Sequence[str]) -> list[Money]:
        return await self._prices.get(*product_ids)

    @override
    async def shipping(self, address: Address, lines: Sequence[CartLine]) -> Money:
        return await self._shipping.quote(address, lines)

    @override
    async def convert(self, amounts: Sequence[Money], to_code: str) -> list[Money]:
        # Amounts in the same currency need no call; equal amounts share an entry of the cache.
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
        getattr(request, "from").CopyFrom(money_to_wire(amount))  # a keyword of Python
        try:
            with reading("currency", InvalidArgument, OutOfRange):
                converted = await self._currency.Convert(request)
        except InvalidArgument as error:
            raise InvalidArgument.field("user_currency", "is not supported") from error
        return money_from_wire(converted)
