"""shop.PaymentService and shop.internal.PaymentLedger: map messages to the domain and back."""

import uuid
from dataclasses import dataclass

import structlog
from typing_extensions import override

from chassis.failpoints import Failpoints
from chassis.rpc.calls import metadata_value
from chassis.rpc.serving import ServicerContext
from chassis.rpc.wire import money_to_wire, parse_wire_time, time_to_wire
from chassis.values import paging
from chassis.values.fields import limit_text, parse_idempotency_key, require_present, require_text
from payment_service import failpoints
from payment_service.cards import Card
from payment_service.domain import CapturedCharge, ChargeRequest, PaymentProcessor, Recorded, State
from shop import payment_pb2, payment_pb2_grpc
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal import payment_ledger_pb2_grpc as ledger_pb2_grpc

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255
_MAX_ID_LENGTH = 64


@dataclass(frozen=True)
class PaymentService(payment_pb2_grpc.PaymentServiceServicer):
    """The public service."""

    _processor: PaymentProcessor
    _failpoints: Failpoints

    @override
    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        key = _idempotency_key(context)
        charge = _charge_from_wire(request, context)
        await self._failpoints.reach(failpoints.BEFORE_CHARGE)
        entry = await self._processor.charge(key, charge)
        if entry.recorded_at:  # by an earlier call, perhaps so long ago that its shipment is forgotten
            context.set_trailing_metadata((("charged-at", f"{entry.recorded_at:.6f}"),))
        log.debug("charged", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.AFTER_CHARGE)
        return payment_pb2.ChargeResponse(transaction_id=entry.transaction_id)


@dataclass(frozen=True)
class PaymentLedger(ledger_pb2_grpc.PaymentLedgerServicer):
    """The internal service: for callers in doubt about a charge, and for reconciliation."""

    _processor: PaymentProcessor
    _failpoints: Failpoints

    @override
    async def ResolveOrFence(
        self, request: ledger_pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> ledger_pb2.ResolveOrFenceResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.BEFORE_RESOLVE_OR_FENCE)
        found = await self._processor.resolve_or_fence(key)
        log.info("resolved", transaction_id=found.entry.transaction_id, state=found.entry.state)
        await self._failpoints.reach(failpoints.AFTER_RESOLVE_OR_FENCE)
        return _recorded_to_wire(found)

    @override
    async def Void(self, request: ledger_pb2.VoidRequest, _context: ServicerContext) -> ledger_pb2.VoidResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.BEFORE_VOID)
        entry = await self._processor.void(key)
        log.info("voided", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.AFTER_VOID)
        return ledger_pb2.VoidResponse(transaction_id=entry.transaction_id)

    @override
    async def ListCharges(
        self, request: ledger_pb2.ListChargesRequest, _context: ServicerContext
    ) -> ledger_pb2.ListChargesResponse:
        after = paging.parse_position(parse_wire_time(request.since, field="since"), request.page_token)
        page = await self._processor.ledger.list_captured(after, paging.PAGE_SIZE)
        charges = [_captured_to_wire(charge) for charge in page]
        return ledger_pb2.ListChargesResponse(charges=charges, next_page_token=paging.next_page_token(page))


def _idempotency_key(context: ServicerContext) -> str:
    """Return the call's idempotency-key; a call without one gets a random key."""
    given = metadata_value(context, "idempotency-key")
    return str(uuid.uuid4()) if given is None else parse_idempotency_key(given)


def _id_of(context: ServicerContext, name: str) -> str:
    return limit_text(metadata_value(context, name) or "", name, max_length=_MAX_ID_LENGTH)


def _charge_from_wire(request: payment_pb2.ChargeRequest, context: ServicerContext) -> ChargeRequest:
    """Convert the request; raise InvalidArgument if amount or card is missing."""
    require_present(request.HasField("amount"), "amount")
    require_present(request.HasField("credit_card"), "credit_card")
    return ChargeRequest(
        request.amount.currency_code,
        request.amount.units,
        request.amount.nanos,
        _card_from_wire(request.credit_card),
        _id_of(context, "request-fingerprint"),
        _id_of(context, "purchase-id"),
    )


def _card_from_wire(card: payment_pb2.CreditCardInfo) -> Card:
    return Card(
        number=card.credit_card_number,
        cvv=card.credit_card_cvv,
        year=card.credit_card_expiration_year,
        month=card.credit_card_expiration_month,
    )


def _recorded_to_wire(found: Recorded) -> ledger_pb2.ResolveOrFenceResponse:
    entry = found.entry
    if entry.payment is None:
        return ledger_pb2.ResolveOrFenceResponse(fenced=ledger_pb2.Fenced(existing=found.existing))
    if entry.reason is not None:
        return ledger_pb2.ResolveOrFenceResponse(declined=ledger_pb2.Declined(reason=entry.reason))
    if entry.state is State.VOIDED:
        return ledger_pb2.ResolveOrFenceResponse(voided=ledger_pb2.Voided(transaction_id=entry.transaction_id))
    charged = ledger_pb2.Charged(
        transaction_id=entry.transaction_id,
        amount=money_to_wire(entry.payment.amount),
        request_fingerprint=entry.payment.request_fingerprint,
        purchase_id=entry.payment.purchase_id,
        recorded_at=time_to_wire(entry.recorded_at),
    )
    return ledger_pb2.ResolveOrFenceResponse(charged=charged)


def _captured_to_wire(charge: CapturedCharge) -> ledger_pb2.CapturedCharge:
    return ledger_pb2.CapturedCharge(
        charge_key=charge.key,
        transaction_id=charge.transaction_id,
        amount=money_to_wire(charge.amount),
        recorded_at=time_to_wire(charge.recorded_at),
    )
