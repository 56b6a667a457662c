"""Reads of cart, catalog, currency and shipping. Nothing here has an effect, so every call may be repeated."""

from collections.abc import Sequence

from chassis.cache import TtlCache
from chassis.errors import (
    DomainError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    Unavailable,
)
from chassis.money import Money
from chassis.wire import money_to_wire
from checkout_service.codec import PeerBroken, address_to_wire, lines_to_wire, money_from_peer
from checkout_service.domain import Address, Cart, CartLine, ProductWithdrawn, QuoteRefused
from shop import (
    cart_pb2,
    cart_pb2_grpc,
    currency_pb2,
    currency_pb2_grpc,
    product_catalog_pb2,
    product_catalog_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)

PRICE_TTL_SECONDS = 5.0
CONVERSION_TTL_SECONDS = 60.0
RETRY_SECONDS = 1.0

DEFINITE = (InvalidArgument, FailedPrecondition, NotFound, OutOfRange)
"""What a peer decided: asking again would get the same."""


class DependencyUnavailable(Unavailable):
    """A peer that is needed before an order is begun does not answer as it should. Nothing was done."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} is not available", metadata={"peer": peer}, retry_after_seconds=RETRY_SECONDS)


class ShopQuotes:
    """See `domain.Quotes`. Prices and conversions are kept for a short time: they change rarely.

    Every failure that is no decision of the peer is DependencyUnavailable.
    """

    def __init__(
        self,
        cart: cart_pb2_grpc.CartServiceStub,
        catalog: product_catalog_pb2_grpc.ProductCatalogServiceStub,
        currency: currency_pb2_grpc.CurrencyServiceStub,
        shipping: shipping_pb2_grpc.ShippingServiceStub,
    ) -> None:
        self._cart = cart
        self._catalog = catalog
        self._currency = currency
        self._shipping = shipping
        self._prices = TtlCache(self._fetch_price, PRICE_TTL_SECONDS)
        self._conversions = TtlCache(self._fetch_conversion, CONVERSION_TTL_SECONDS)

    async def cart(self, user_id: str) -> Cart:
        """Read the user's cart, with its etag if it has one."""
        call = self._cart.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
        try:
            found = await call
        except DomainError as error:
            raise DependencyUnavailable("cart") from error
        etag = next((str(value) for key, value in await call.trailing_metadata() or () if key == "etag"), None)
        return Cart(
            tuple(CartLine(item.product_id, item.quantity) for item in found.items), str(etag) if etag else None
        )

    async def unit_prices(self, product_ids: Sequence[str]) -> list[Money]:
        """Read each product's price, at most 5 s old. Raises ProductWithdrawn."""
        return await self._prices.get(*product_ids)

    async def shipping(self, address: Address, lines: Sequence[CartLine]) -> Money:
        """Ask for the cost of shipping. Raises QuoteRefused."""
        request = shipping_pb2.GetQuoteRequest(address=address_to_wire(address), items=lines_to_wire(lines))
        try:
            return money_from_peer((await self._shipping.GetQuote(request)).cost_usd)
        except DEFINITE as error:
            raise QuoteRefused(f"no shipping: {error.message}", metadata={"peer_reason": error.reason}) from error
        except PeerBroken:
            raise
        except DomainError as error:
            raise DependencyUnavailable("shipping") from error

    async def convert(self, amounts: Sequence[Money], to_code: str) -> list[Money]:
        """Express each amount in a currency. Raises InvalidArgument for an unknown one, and OutOfRange."""
        foreign = [(amount, to_code) for amount in amounts if amount.currency_code != to_code]
        converted = dict(zip(foreign, await self._conversions.get(*foreign), strict=True))
        return [converted.get((amount, to_code), amount) for amount in amounts]

    async def _fetch_price(self, product_id: str) -> Money:
        try:
            product = await self._catalog.GetProduct(product_catalog_pb2.GetProductRequest(id=product_id))
        except DEFINITE as error:
            raise ProductWithdrawn(
                "a product in the cart is not for sale", metadata={"product_id": product_id}
            ) from error
        except DomainError as error:
            raise DependencyUnavailable("product-catalog") from error
        return money_from_peer(product.price_usd)

    async def _fetch_conversion(self, wanted: tuple[Money, str]) -> Money:
        amount, to_code = wanted
        request = currency_pb2.CurrencyConversionRequest(to_code=to_code)
        getattr(request, "from").CopyFrom(money_to_wire(amount))  # a keyword of Python
        try:
            converted = await self._currency.Convert(request)
        except InvalidArgument as error:
            raise InvalidArgument.field("user_currency", "is not supported") from error
        except OutOfRange:
            raise
        except DomainError as error:
            raise DependencyUnavailable("currency") from error
        return money_from_peer(converted)
