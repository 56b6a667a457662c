"""Fakes of shipping, of payment with its ledger, and of e-mail."""

import asyncio
import uuid

from typing_extensions import override

from chassis.errors import Aborted, FailedPrecondition, IdempotencyKeyReused, Internal, NotFound
from chassis.rpc.calls import ServicerContext, metadata_of
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceServicer
from shop.empty_pb2 import Empty
from shop.payment_pb2 import ChargeRequest, ChargeResponse
from shop.payment_pb2_grpc import PaymentServiceServicer
from shop.shipping_pb2 import GetQuoteRequest, GetQuoteResponse, ShipOrderRequest, ShipOrderResponse
from shop.shipping_pb2_grpc import ShippingServiceServicer
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest, AcceptConfirmationsResponse
from shop_internal.confirmations_pb2_grpc import ConfirmationsServicer
from shop_internal.payment_ledger_pb2 import (
    Charged,
    Fenced,
    ResolveOrFenceRequest,
    ResolveOrFenceResponse,
    Voided,
    VoidRequest,
    VoidResponse,
)
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerServicer
from shop_internal.shipment_manifest_pb2 import (
    ResolveShipmentRequest,
    ResolveShipmentResponse,
    Shipment,
    ShipmentFenced,
)
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestServicer
from shop_kit.fake_peers.peer import FakePeer, money, record_refusals


class FakeShipping(FakePeer, ShippingServiceServicer):
    """Quotes and ships, once per key; an order to `failing_city` fails every time.

    Attributes:
        quote_nanos: what a quote costs, in nanos of a USD.
        quote_depends_on: value of that metadata of quotes; without it none is reused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shipments: dict[str, ShipOrderRequest] = {}
        self.fenced: set[str] = set()
        self.failing_city = ""
        self.quote_nanos = 4_995_000_000
        self.quote_depends_on = ""

    @override
    async def GetQuote(self, _request: GetQuoteRequest, context: ServicerContext) -> GetQuoteResponse:
        await self.begin("GetQuote")
        if self.quote_depends_on:
            context.set_trailing_metadata((("quote-depends-on", self.quote_depends_on),))
        return GetQuoteResponse(cost_usd=money("USD", self.quote_nanos))

    @override
    async def ShipOrder(self, request: ShipOrderRequest, context: ServicerContext) -> ShipOrderResponse:
        await self.begin("ShipOrder")
        if request.address.city == self.failing_city:
            raise Internal("fails every time")
        key = metadata_of(context).get("idempotency-key") or uuid.uuid4().hex
        if key in self.fenced:
            raise Aborted("the key is fenced", reason="SHIPMENT_FENCED")
        if self.shipments.setdefault(key, request) != request:
            raise IdempotencyKeyReused
        await self.end("ShipOrder")
        return ShipOrderResponse(tracking_id=f"track-{key}")


class FakeManifest(FakePeer, ShipmentManifestServicer):
    """Shipping's internal manifest service."""

    def __init__(self, shipping: FakeShipping) -> None:
        super().__init__()
        self._shipping = shipping

    @override
    async def ResolveOrFence(
        self, request: ResolveShipmentRequest, _context: ServicerContext
    ) -> ResolveShipmentResponse:
        await self.begin("ResolveOrFence")
        key = request.shipment_key
        if key in self._shipping.shipments:
            return ResolveShipmentResponse(shipped=Shipment(tracking_id=f"track-{key}"))
        fenced = ShipmentFenced(existing=key in self._shipping.fenced)
        self._shipping.fenced.add(key)
        return ResolveShipmentResponse(fenced=fenced)


class FakePayment(FakePeer, PaymentServiceServicer):
    """Charges once per key.

    Attributes:
        ledger: `charged`, `voided` or `fenced`, by key.
        seconds_left: until the deadline of the last charge.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger: dict[str, str] = {}
        self.requests: dict[str, ChargeRequest] = {}
        self.fingerprints: dict[str, str] = {}
        self.purchases: dict[str, str] = {}
        self.seconds_left = 0.0

    @property
    def captured(self) -> list[str]:
        """The keys of charges that are not voided."""
        return [key for key, state in self.ledger.items() if state == "charged"]

    @override
    async def Charge(self, request: ChargeRequest, context: ServicerContext) -> ChargeResponse:
        self.seconds_left = context.time_remaining() or 0.0
        key = metadata_of(context).get("idempotency-key") or uuid.uuid4().hex
        await self.begin("Charge")
        purchase = metadata_of(context).get("purchase-id")
        if key not in self.ledger and purchase and purchase in map(self.purchases.get, self.captured):
            raise FailedPrecondition("this cart was ordered already", reason="CART_ORDERED")
        self.purchases.setdefault(key, purchase or "")
        state = self.ledger.setdefault(key, "charged")
        self.fingerprints.setdefault(key, metadata_of(context).get("request-fingerprint") or "")
        if state == "fenced":
            raise Aborted("the key is fenced", reason="CHARGE_FENCED")
        if self.requests.setdefault(key, request) != request or self.purchases[key] != (purchase or ""):
            raise IdempotencyKeyReused
        if state == "voided":
            raise FailedPrecondition("the charge was voided", reason="CHARGE_VOIDED")
        await self.end("Charge")
        return ChargeResponse(transaction_id=f"transaction-{key}")


class FakeLedger(FakePeer, PaymentLedgerServicer):
    """Payment's internal ledger service."""

    def __init__(self, payment: FakePayment) -> None:
        super().__init__()
        self._payment = payment

    @override
    async def ResolveOrFence(self, request: ResolveOrFenceRequest, _context: ServicerContext) -> ResolveOrFenceResponse:
        await self.begin("ResolveOrFence")
        key, payment = request.charge_key, self._payment
        existing = key in payment.ledger
        state = payment.ledger.setdefault(key, "fenced")
        if state == "fenced":
            return ResolveOrFenceResponse(fenced=Fenced(existing=existing))
        if state == "voided":
            return ResolveOrFenceResponse(voided=Voided())
        charged = Charged(
            transaction_id=f"transaction-{key}",
            amount=payment.requests[key].amount,
            request_fingerprint=payment.fingerprints.get(key, ""),
            purchase_id=payment.purchases.get(key, ""),
        )
        return ResolveOrFenceResponse(charged=charged)

    @override
    async def Void(self, request: VoidRequest, _context: ServicerContext) -> VoidResponse:
        await self.begin("Void", request.charge_key.partition(":")[0])
        if self._payment.ledger.get(request.charge_key) not in {"charged", "voided"}:
            raise NotFound("no such charge")
        self._payment.ledger[request.charge_key] = "voided"
        return VoidResponse(transaction_id=f"transaction-{request.charge_key}")


class FakeEmail(FakePeer, EmailServiceServicer):
    """Collects the confirmations instead of sending them; one to `hanging_address` gets no response."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[SendOrderConfirmationRequest] = []
        self.hanging_address = ""

    @override
    async def SendOrderConfirmation(self, request: SendOrderConfirmationRequest, _context: ServicerContext) -> Empty:
        await self.begin("SendOrderConfirmation", request.order.order_id)
        if request.email == self.hanging_address:
            await asyncio.Event().wait()
        self.sent.append(request)
        return Empty()


class FakeConfirmations(FakePeer, ConfirmationsServicer):
    """The internal service of a fake email service: passes each confirmation to its public method."""

    def __init__(self, email: FakeEmail) -> None:
        super().__init__()
        self._email = email

    @override
    async def AcceptConfirmations(
        self, request: AcceptConfirmationsRequest, context: ServicerContext
    ) -> AcceptConfirmationsResponse:
        await self.begin("AcceptConfirmations")
        response = AcceptConfirmationsResponse()
        sent = (self._email.SendOrderConfirmation(confirmation, context) for confirmation in request.confirmations)
        await record_refusals(sent, response.refused)
        return response
