"""Fakes of cart, catalog and currency."""

import uuid
from collections import Counter, defaultdict

from typing_extensions import override

from chassis.errors import InvalidArgument, NotFound
from chassis.rpc.calls import ServicerContext, metadata_of
from shop.cart_pb2 import AddItemRequest, Cart, CartItem, EmptyCartRequest, GetCartRequest
from shop.cart_pb2_grpc import CartServiceServicer
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceServicer
from shop.empty_pb2 import Empty
from shop.money_pb2 import Money
from shop.product_catalog_pb2 import (
    GetProductRequest,
    ListProductsResponse,
    Product,
    SearchProductsRequest,
    SearchProductsResponse,
)
from shop.product_catalog_pb2_grpc import ProductCatalogServiceServicer
from shop_internal.ordered_cart_pb2 import (
    RemoveAllOrderedRequest,
    RemoveAllOrderedResponse,
    RemoveOrderedRequest,
    RemoveOrderedResponse,
)
from shop_internal.ordered_cart_pb2_grpc import OrderedCartServicer
from shop_kit.fake_peers.peer import FakePeer, money, record_refusals

RATES = {"CHF": 4, "EUR": 2, "GBP": 3, "JPY": 150, "USD": 1}
"""Units of a currency per USD."""


class FakeCart(FakePeer, CartServiceServicer):
    """One cart per user. `has_generations = False` makes it a foreign one, `has_etags = False` one without etags.

    Attributes:
        ordered_etags: the etag or generation that was ordered, by user, of carts that an order emptied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, dict[str, int]] = {}
        self.etags: dict[str, str] = defaultdict(lambda: uuid.uuid4().hex)
        self.ordered_etags: dict[str, str] = {}
        self.has_etags = self.has_generations = True

    def fill(self, user_id: str = "ann", **quantities: int) -> None:
        """Add products to a cart."""
        generation = self.etags[user_id][:16] if user_id in self.lines else uuid.uuid4().hex[:16]
        self.lines.setdefault(user_id, {}).update(quantities)
        self.etags[user_id] = generation + uuid.uuid4().hex[:16]
        self.ordered_etags.pop(user_id, None)

    @override
    async def AddItem(self, request: AddItemRequest, _context: ServicerContext) -> Empty:
        self.fill(request.user_id, **{request.item.product_id: request.item.quantity})
        return Empty()

    @override
    async def GetCart(self, request: GetCartRequest, context: ServicerContext) -> Cart:
        await self.begin("GetCart")
        if self.has_etags:
            trailers = {"etag": self.etags[request.user_id]}
            generation = trailers["etag"] if request.user_id in self.lines else ""
            if request.user_id in self.ordered_etags:
                generation = trailers["ordered-etag"] = self.ordered_etags[request.user_id]
            if self.has_generations:
                trailers["cart-generation"] = generation[:16]
            context.set_trailing_metadata(tuple(trailers.items()))
        lines = self.lines.get(request.user_id, {})
        items = [CartItem(product_id=product, quantity=quantity) for product, quantity in lines.items()]
        return Cart(user_id=request.user_id, items=items)

    @override
    async def EmptyCart(self, request: EmptyCartRequest, context: ServicerContext) -> Empty:
        await self.begin("EmptyCart")
        expected = metadata_of(context).get("if-match")
        if expected is None or expected == self.etags[request.user_id]:
            self.lines.pop(request.user_id, None)
            self.etags[request.user_id] = uuid.uuid4().hex
        await self.end("EmptyCart")
        return Empty()


class FakeOrderedCart(FakePeer, OrderedCartServicer):
    """The internal service of a cart."""

    def __init__(self, cart: FakeCart | None = None) -> None:
        super().__init__()
        self._cart = cart or FakeCart()

    @override
    async def RemoveOrdered(self, request: RemoveOrderedRequest, _context: ServicerContext) -> RemoveOrderedResponse:
        await self.begin("RemoveOrdered", request.order_id)
        self._remove(request)
        await self.end("RemoveOrdered")
        return RemoveOrderedResponse()

    @override
    async def RemoveAllOrdered(
        self, request: RemoveAllOrderedRequest, context: ServicerContext
    ) -> RemoveAllOrderedResponse:
        await self.begin("RemoveAllOrdered")
        response = RemoveAllOrderedResponse()
        removed = (self.RemoveOrdered(removal, context) for removal in request.removals)
        await record_refusals(removed, response.refused)
        return response

    def _remove(self, request: RemoveOrderedRequest) -> None:
        cart, user_id = self._cart, request.user_id
        if user_id not in cart.lines or cart.etags[user_id][:16] != request.etag[:16]:
            return
        ordered = Counter({item.product_id: item.quantity for item in request.items})
        remaining = Counter(cart.lines.pop(user_id)) - ordered
        if remaining:
            cart.lines[user_id] = dict(remaining)
        else:
            cart.ordered_etags[user_id] = request.etag
        cart.etags[user_id] = uuid.uuid4().hex


class FakeCatalog(FakePeer, ProductCatalogServiceServicer):
    """A catalog of `prices`: nanos of a USD by product id. Some products have `names`."""

    def __init__(self) -> None:
        super().__init__()
        self.prices = {"mug": 8_990_000_000, "cup": 8_990_000_000, "lamp": 24_995_000_000, "rug": 9 * 10**27}
        self.names = {"mug": "Stoneware mug"}

    @override
    async def ListProducts(self, _request: Empty, _context: ServicerContext) -> ListProductsResponse:
        """Return the products without prices."""
        await self.begin("ListProducts")
        products = [Product(id=product_id, name=self.names.get(product_id, "")) for product_id in self.prices]
        return ListProductsResponse(products=products)

    @override
    async def SearchProducts(
        self, _request: SearchProductsRequest, _context: ServicerContext
    ) -> SearchProductsResponse:
        """Return nothing: checkout does not call it."""
        return SearchProductsResponse()

    @override
    async def GetProduct(self, request: GetProductRequest, _context: ServicerContext) -> Product:
        await self.begin("GetProduct")
        if request.id not in self.prices:
            raise NotFound("no such product", reason="PRODUCT_NOT_FOUND")
        return Product(id=request.id, price_usd=money("USD", self.prices[request.id]))


class FakeCurrency(FakePeer, CurrencyServiceServicer):
    """Converts USD exactly, by RATES."""

    @override
    async def Convert(self, request: CurrencyConversionRequest, _context: ServicerContext) -> Money:
        await self.begin("Convert")
        if request.to_code not in RATES:
            raise InvalidArgument.field("to_code", "is not supported")
        amount = getattr(request, "from")
        return money(request.to_code, (amount.units * 10**9 + amount.nanos) * RATES[request.to_code])
