"""Fakes of shipping, of payment with its ledger, and of e-mail."""

import asyncio
import uuid

from typing_extensions import override

from chassis.errors import (
    REFUSALS,
    Aborted,
    FailedPrecondition,
    IdempotencyKeyReused,
    Internal,
    NotFound,
    Unimplemented,
)
from chassis.rpc.calls import ServicerContext, metadata_value
from shop import (
    email_pb2,
    email_pb2_grpc,
    empty_pb2,
    payment_pb2,
    payment_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)
from shop_internal import (
    confirmations_pb2,
    confirmations_pb2_grpc,
    payment_ledger_pb2,
    payment_ledger_pb2_grpc,
    shipment_manifest_pb2,
    shipment_manifest_pb2_grpc,
)
from shop_kit.fake_peers.peer import FakePeer, money


class FakeShipping(FakePeer, shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes and ships, once per key; an order to `failing_city` fails every time.

    Attributes:
        quote_nanos: what a quote costs, in nanos of a USD.
        quote_depends_on: value of that metadata of quotes; without it none is reused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shipments: dict[str, shipping_pb2.ShipOrderRequest] = {}
        self.fenced: set[str] = set()
        self.failing_city = ""
        self.quote_nanos = 4_995_000_000
        self.quote_depends_on = ""

    @override
    async def GetQuote(
        self, _request: shipping_pb2.GetQuoteRequest, context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        await self.begin("GetQuote")
        if self.quote_depends_on:
            context.set_trailing_metadata((("quote-depends-on", self.quote_depends_on),))
        return shipping_pb2.GetQuoteResponse(cost_usd=money("USD", self.quote_nanos))

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        await self.begin("ShipOrder")
        if request.address.city == self.failing_city:
            raise Internal("fails every time")
        key = metadata_value(context, "idempotency-key") or uuid.uuid4().hex
        if key in self.fenced:
            raise Aborted("the key is fenced", reason="SHIPMENT_FENCED")
        if self.shipments.setdefault(key, request) != request:
            raise IdempotencyKeyReused
        await self.end("ShipOrder")
        return shipping_pb2.ShipOrderResponse(tracking_id=f"track-{key}")


class FakeManifest(FakePeer, shipment_manifest_pb2_grpc.ShipmentManifestServicer):
    """Shipping's internal manifest service."""

    def __init__(self, shipping: FakeShipping) -> None:
        super().__init__()
        self._shipping = shipping

    @override
    async def ResolveOrFence(
        self, request: shipment_manifest_pb2.ResolveShipmentRequest, _context: ServicerContext
    ) -> shipment_manifest_pb2.ResolveShipmentResponse:
        await self.begin("ResolveOrFence")
        key = request.shipment_key
        if key in self._shipping.shipments:
            shipped = shipment_manifest_pb2.Shipment(tracking_id=f"track-{key}")
            return shipment_manifest_pb2.ResolveShipmentResponse(shipped=shipped)
        fenced = shipment_manifest_pb2.ShipmentFenced(existing=key in self._shipping.fenced)
        self._shipping.fenced.add(key)
        return shipment_manifest_pb2.ResolveShipmentResponse(fenced=fenced)


class FakePayment(FakePeer, payment_pb2_grpc.PaymentServiceServicer):
    """Charges once per key.

    Attributes:
        ledger: `charged`, `voided` or `fenced`, by key.
        seconds_left: until the deadline of the last charge.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger: dict[str, str] = {}
        self.requests: dict[str, payment_pb2.ChargeRequest] = {}
        self.fingerprints: dict[str, str] = {}
        self.purchases: dict[str, str] = {}
        self.seconds_left = 0.0

    @property
    def captured(self) -> list[str]:
        """The keys of charges that are not voided."""
        return [key for key, state in self.ledger.items() if state == "charged"]

    @override
    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        self.seconds_left = context.time_remaining() or 0.0
        key = metadata_value(context, "idempotency-key") or uuid.uuid4().hex
        await self.begin("Charge")
        purchase = metadata_value(context, "purchase-id")
        if key not in self.ledger and purchase and purchase in map(self.purchases.get, self.captured):
            raise FailedPrecondition("this cart was ordered already", reason="CART_ORDERED")
        self.purchases.setdefault(key, purchase or "")
        state = self.ledger.setdefault(key, "charged")
        self.fingerprints.setdefault(key, metadata_value(context, "request-fingerprint") or "")
        if state == "fenced":
            raise Aborted("the key is fenced", reason="CHARGE_FENCED")
        if self.requests.setdefault(key, request) != request or self.purchases[key] != (purchase or ""):
            raise IdempotencyKeyReused
        if state == "voided":
            raise FailedPrecondition("the charge was voided", reason="CHARGE_VOIDED")
        await self.end("Charge")
        return payment_pb2.ChargeResponse(transaction_id=f"transaction-{key}")


class FakeLedger(FakePeer, payment_ledger_pb2_grpc.PaymentLedgerServicer):
    """Payment's internal ledger service."""

    def __init__(self, payment: FakePayment) -> None:
        super().__init__()
        self._ledger = payment.ledger
        self._requests = payment.requests
        self._fingerprints, self._purchases = payment.fingerprints, payment.purchases

    @override
    async def ResolveOrFence(
        self, request: payment_ledger_pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> payment_ledger_pb2.ResolveOrFenceResponse:
        await self.begin("ResolveOrFence")
        key = request.charge_key
        existing = key in self._ledger
        match self._ledger.setdefault(key, "fenced"):
            case "charged":
                amount = self._requests[key].amount
                charged = payment_ledger_pb2.Charged(
                    transaction_id=f"transaction-{key}",
                    amount=amount,
                    request_fingerprint=self._fingerprints.get(key, ""),
                    purchase_id=self._purchases.get(key, ""),
                )
                return payment_ledger_pb2.ResolveOrFenceResponse(charged=charged)
            case "voided":
                return payment_ledger_pb2.ResolveOrFenceResponse(voided=payment_ledger_pb2.Voided())
            case _:
                fenced = payment_ledger_pb2.Fenced(existing=existing)
                return payment_ledger_pb2.ResolveOrFenceResponse(fenced=fenced)

    @override
    async def Void(
        self, request: payment_ledger_pb2.VoidRequest, _context: ServicerContext
    ) -> payment_ledger_pb2.VoidResponse:
        await self.begin("Void", request.charge_key.partition(":")[0])
        if self._ledger.get(request.charge_key) not in {"charged", "voided"}:
            raise NotFound("no such charge")
        self._ledger[request.charge_key] = "voided"
        return payment_ledger_pb2.VoidResponse(transaction_id=f"transaction-{request.charge_key}")


class FakeEmail(FakePeer, email_pb2_grpc.EmailServiceServicer):
    """Collects the confirmations instead of sending them; one to `hanging_address` gets no response."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[email_pb2.SendOrderConfirmationRequest] = []
        self.hanging_address = ""

    @override
    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, _context: ServicerContext
    ) -> empty_pb2.Empty:
        await self.begin("SendOrderConfirmation", request.order.order_id)
        if request.email == self.hanging_address:
            await asyncio.Event().wait()
        self.sent.append(request)
        return empty_pb2.Empty()


class FakeConfirmations(FakePeer, confirmations_pb2_grpc.ConfirmationsServicer):
    """The internal service of a fake email service: passes each confirmation to its public method."""

    def __init__(self, email: FakeEmail) -> None:
        super().__init__()
        self._email = email

    @override
    async def AcceptConfirmations(
        self, request: confirmations_pb2.AcceptConfirmationsRequest, context: ServicerContext
    ) -> confirmations_pb2.AcceptConfirmationsResponse:
        await self.begin("AcceptConfirmations")
        response = confirmations_pb2.AcceptConfirmationsResponse()
        for index, confirmation in enumerate(request.confirmations):
            try:
                await self._email.SendOrderConfirmation(confirmation, context)
            except Unimplemented:
                raise
            except REFUSALS as error:
                response.refused.add(index=index, reason=error.reason)
        return response
