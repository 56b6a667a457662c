"""Peers for tests: they keep the contract, count what they do, and fail or hang when a test wants it."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from chassis.calls import metadata_value
from chassis.errors import Aborted, DomainError, Internal, InvalidArgument, NotFound
from chassis.serving import ServicerContext
from chassis.testing import Registration, serve
from shop import (
    cart_pb2,
    cart_pb2_grpc,
    currency_pb2,
    currency_pb2_grpc,
    email_pb2,
    email_pb2_grpc,
    empty_pb2,
    money_pb2,
    payment_pb2,
    payment_pb2_grpc,
    product_catalog_pb2,
    product_catalog_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)
from shop_internal import payment_ledger_pb2, payment_ledger_pb2_grpc

RATES = {"EUR": 2, "JPY": 150}
"""How many make a dollar."""


@dataclass
class Trouble:
    """What a peer does instead of answering: fail so many times, before or after its effect, or wait for an event."""

    error: DomainError | None = None
    times: int = 1_000_000
    after: bool = False
    gate: asyncio.Event | None = None


class FakePeer:
    """Counts calls by method and makes trouble."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.trouble: dict[str, Trouble] = {}

    def hold(self, method: str, *, after: bool = False) -> asyncio.Event:
        """Let calls wait until the event is set."""
        gate = asyncio.Event()
        self.trouble[method] = Trouble(gate=gate, after=after)
        return gate

    async def begin(self, method: str) -> None:
        """Count the call, and make trouble before its effect."""
        self.calls[method] += 1
        await self._meet(method, after=False)

    async def end(self, method: str) -> None:
        """Make trouble after its effect."""
        await self._meet(method, after=True)

    async def _meet(self, method: str, *, after: bool) -> None:
        trouble = self.trouble.get(method)
        if trouble is None or trouble.after is not after or trouble.times <= 0:
            return
        trouble.times -= 1
        if trouble.gate is not None:
            await trouble.gate.wait()
        if trouble.error is not None:
            raise trouble.error


class FakeCart(FakePeer, cart_pb2_grpc.CartServiceServicer):
    """One cart for each user; `has_etags` is False in a foreign one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, dict[str, int]] = {}
        self.etags: dict[str, str] = defaultdict(lambda: uuid.uuid4().hex)
        self.has_etags = True

    def fill(self, user_id: str = "ann", **quantities: int) -> None:
        """Add products to a cart."""
        self.lines.setdefault(user_id, {}).update(quantities)
        self.etags[user_id] = uuid.uuid4().hex

    async def AddItem(self, request: cart_pb2.AddItemRequest, _context: ServicerContext) -> empty_pb2.Empty:
        """Add a product."""
        self.fill(request.user_id, **{request.item.product_id: request.item.quantity})
        return empty_pb2.Empty()

    async def GetCart(self, request: cart_pb2.GetCartRequest, context: ServicerContext) -> cart_pb2.Cart:
        """Tell the lines and the etag."""
        await self.begin("GetCart")
        if self.has_etags:
            context.set_trailing_metadata((("etag", self.etags[request.user_id]),))
        lines = self.lines.get(request.user_id, {})
        items = [cart_pb2.CartItem(product_id=product, quantity=quantity) for product, quantity in lines.items()]
        return cart_pb2.Cart(user_id=request.user_id, items=items)

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: ServicerContext) -> empty_pb2.Empty:
        """Empty the cart unless it changed."""
        await self.begin("EmptyCart")
        expected = metadata_value(context, "if-match")
        if expected is None or expected == self.etags[request.user_id]:
            self.lines.pop(request.user_id, None)
            self.etags[request.user_id] = uuid.uuid4().hex
        await self.end("EmptyCart")
        return empty_pb2.Empty()


class FakeCatalog(FakePeer, product_catalog_pb2_grpc.ProductCatalogServiceServicer):
    """Products by id, with prices in nanos of a dollar."""

    def __init__(self) -> None:
        super().__init__()
        self.prices = {"mug": 8_990_000_000, "cup": 8_990_000_000, "lamp": 24_995_000_000, "rug": 9 * 10**27}

    async def ListProducts(
        self, _request: empty_pb2.Empty, _context: ServicerContext
    ) -> product_catalog_pb2.ListProductsResponse:
        """Not asked for by checkout."""
        return product_catalog_pb2.ListProductsResponse()

    async def SearchProducts(
        self, _request: product_catalog_pb2.SearchProductsRequest, _context: ServicerContext
    ) -> product_catalog_pb2.SearchProductsResponse:
        """Not asked for by checkout."""
        return product_catalog_pb2.SearchProductsResponse()

    async def GetProduct(
        self, request: product_catalog_pb2.GetProductRequest, _context: ServicerContext
    ) -> product_catalog_pb2.Product:
        """Tell a product."""
        await self.begin("GetProduct")
        if request.id not in self.prices:
            raise NotFound("no such product", reason="PRODUCT_NOT_FOUND")
        return product_catalog_pb2.Product(id=request.id, price_usd=money("USD", self.prices[request.id]))


class FakeCurrency(FakePeer, currency_pb2_grpc.CurrencyServiceServicer):
    """Converts dollars by RATES."""

    async def GetSupportedCurrencies(
        self, _request: empty_pb2.Empty, _context: ServicerContext
    ) -> currency_pb2.GetSupportedCurrenciesResponse:
        """Tell the codes."""
        return currency_pb2.GetSupportedCurrenciesResponse(currency_codes=["USD", *RATES])

    async def Convert(
        self, request: currency_pb2.CurrencyConversionRequest, _context: ServicerContext
    ) -> money_pb2.Money:
        """Convert exactly."""
        await self.begin("Convert")
        if request.to_code not in RATES:
            raise InvalidArgument.field("to_code", "is not supported")
        amount = getattr(request, "from")
        return money(request.to_code, (amount.units * 10**9 + amount.nanos) * RATES[request.to_code])


class FakeShipping(FakePeer, shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes a fixed cost; each key is one shipment."""

    def __init__(self) -> None:
        super().__init__()
        self.shipments: dict[str, shipping_pb2.ShipOrderRequest] = {}
        self.poisoned_city = ""

    async def GetQuote(
        self, _request: shipping_pb2.GetQuoteRequest, _context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        """Quote 4.995 dollars."""
        await self.begin("GetQuote")
        return shipping_pb2.GetQuoteResponse(cost_usd=money("USD", 4_995_000_000))

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        """Ship once for each key."""
        await self.begin("ShipOrder")
        if request.address.city == self.poisoned_city:
            raise Internal("it breaks each time")
        key = metadata_value(context, "idempotency-key") or uuid.uuid4().hex
        self.shipments.setdefault(key, request)
        await self.end("ShipOrder")
        return shipping_pb2.ShipOrderResponse(tracking_id=f"track-{key}")


class FakePayment(FakePeer, payment_pb2_grpc.PaymentServiceServicer):
    """Charges each key once; the ledger says `charged`, `voided` or `fenced`."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: dict[str, str] = {}
        self.amounts: dict[str, money_pb2.Money] = {}
        self.seconds_left = 0.0

    @property
    def captured(self) -> list[str]:
        """The keys whose charges stand."""
        return [key for key, state in self.ledger.items() if state == "charged"]

    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        """Charge once for each key."""
        self.seconds_left = context.time_remaining() or 0.0
        await self.begin("Charge")
        key = metadata_value(context, "idempotency-key") or uuid.uuid4().hex
        if self.ledger.setdefault(key, "charged") == "fenced":
            raise Aborted("given up", reason="CHARGE_FENCED")
        self.amounts[key] = request.amount
        await self.end("Charge")
        return payment_pb2.ChargeResponse(transaction_id=f"transaction-{key}")


class FakeLedger(FakePeer, payment_ledger_pb2_grpc.PaymentLedgerServicer):
    """The ledger's own methods."""

    def __init__(self, payment: FakePayment) -> None:
        super().__init__()
        self._ledger = payment.ledger

    async def ResolveOrFence(
        self, request: payment_ledger_pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> payment_ledger_pb2.ResolveOrFenceResponse:
        """Tell of a charge or fence its key."""
        await self.begin("ResolveOrFence")
        match self._ledger.setdefault(request.charge_key, "fenced"):
            case "charged":
                charged = payment_ledger_pb2.Charged(transaction_id=f"transaction-{request.charge_key}")
                return payment_ledger_pb2.ResolveOrFenceResponse(charged=charged)
            case "voided":
                return payment_ledger_pb2.ResolveOrFenceResponse(voided=payment_ledger_pb2.Voided())
            case _:
                return payment_ledger_pb2.ResolveOrFenceResponse(fenced=payment_ledger_pb2.Fenced())

    async def Void(
        self, request: payment_ledger_pb2.VoidRequest, _context: ServicerContext
    ) -> payment_ledger_pb2.VoidResponse:
        """Release a charge."""
        await self.begin("Void")
        if self._ledger.get(request.charge_key) not in {"charged", "voided"}:
            raise NotFound("no such charge")
        self._ledger[request.charge_key] = "voided"
        return payment_ledger_pb2.VoidResponse(transaction_id=f"transaction-{request.charge_key}")


class FakeEmail(FakePeer, email_pb2_grpc.EmailServiceServicer):
    """Keeps what it was to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[email_pb2.SendOrderConfirmationRequest] = []

    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, _context: ServicerContext
    ) -> empty_pb2.Empty:
        """Keep it."""
        await self.begin("SendOrderConfirmation")
        self.sent.append(request)
        return empty_pb2.Empty()


@dataclass
class FakePeers:
    """The six peers, and the ledger of payment."""

    cart: FakeCart = field(default_factory=FakeCart)
    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    currency: FakeCurrency = field(default_factory=FakeCurrency)
    shipping: FakeShipping = field(default_factory=FakeShipping)
    payment: FakePayment = field(default_factory=FakePayment)
    email: FakeEmail = field(default_factory=FakeEmail)

    def __post_init__(self) -> None:
        self.ledger = FakeLedger(self.payment)

    @asynccontextmanager
    async def serving(self, *, with_ledger: bool = True) -> AsyncIterator[str]:
        """Serve all of them on one port; yields its address."""
        registrations: list[Registration] = [
            (cart_pb2_grpc.add_CartServiceServicer_to_server, self.cart),
            (product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, self.catalog),
            (currency_pb2_grpc.add_CurrencyServiceServicer_to_server, self.currency),
            (shipping_pb2_grpc.add_ShippingServiceServicer_to_server, self.shipping),
            (payment_pb2_grpc.add_PaymentServiceServicer_to_server, self.payment),
            (email_pb2_grpc.add_EmailServiceServicer_to_server, self.email),
        ]
        if with_ledger:
            registrations.append((payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, self.ledger))
        async with serve(*registrations) as address:
            yield address


def money(currency_code: str, nanos: int) -> money_pb2.Money:
    """An amount given in nanos."""
    return money_pb2.Money(currency_code=currency_code, units=nanos // 10**9, nanos=nanos % 10**9)
