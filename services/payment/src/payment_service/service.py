"""Servicers for shop.PaymentService and shop.internal.PaymentLedger."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from typing_extensions import override

from chassis.failpoints import Failpoints
from chassis.rpc.calls import ServicerContext, idempotency_key, metadata_of
from chassis.rpc.wire import money_to_wire, parse_wire_time, time_to_wire
from chassis.sql.keyed_store import KeyedStore
from chassis.values import paging
from chassis.values.digests import FINGERPRINT_LENGTH, digest
from chassis.values.fields import limit_text, require_present, require_text
from payment_service import failpoints
from payment_service.cards import Card
from payment_service.domain import ChargeRequest, Entry, PaymentProcessor, State
from shop import payment_pb2, payment_pb2_grpc
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal import payment_ledger_pb2_grpc as ledger_pb2_grpc
from shop_internal.record_digests_pb2 import RecordDigests

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255
_MAX_ID_LENGTH = 64


@dataclass(frozen=True)
class PaymentService(payment_pb2_grpc.PaymentServiceServicer):
    _processor: PaymentProcessor
    _failpoints: Failpoints

    @override
    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        metadata = metadata_of(context)
        key = idempotency_key(metadata) or str(uuid.uuid4())
        charge = _charge_from_wire(request, metadata)
        await self._failpoints.reach(failpoints.CHARGE[0])
        entry = await self._processor.charge(key, charge)
        if entry.existing:  # the caller needs the charge's age: shipping may have deleted an old charge's shipment
            context.set_trailing_metadata((("charged-at", f"{entry.recorded_at:.6f}"),))
        log.debug("charged", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.CHARGE[1])
        return payment_pb2.ChargeResponse(transaction_id=entry.transaction_id)


@dataclass(frozen=True)
class PaymentLedger(ledger_pb2_grpc.PaymentLedgerServicer):
    """The internal service for callers that do not know whether a charge succeeded, and for reconciliation."""

    _processor: PaymentProcessor
    _entries: KeyedStore[Entry]
    _failpoints: Failpoints

    @override
    async def ResolveOrFence(
        self, request: ledger_pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> ledger_pb2.ResolveOrFenceResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.RESOLVE_OR_FENCE[0])
        entry = await self._processor.resolve_or_fence(key)
        log.info("resolved", transaction_id=entry.transaction_id, state=entry.state)
        await self._failpoints.reach(failpoints.RESOLVE_OR_FENCE[1])
        return _outcome_to_wire(entry)

    @override
    async def Void(self, request: ledger_pb2.VoidRequest, _context: ServicerContext) -> ledger_pb2.VoidResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.VOID[0])
        entry = await self._processor.void(key)
        log.info("voided", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.VOID[1])
        return ledger_pb2.VoidResponse(transaction_id=entry.transaction_id)

    @override
    async def ListCharges(
        self, request: ledger_pb2.ListChargesRequest, _context: ServicerContext
    ) -> ledger_pb2.ListChargesResponse:
        since = parse_wire_time(request.since, field="since")
        page, token = await paging.read_page(request, since, self._entries.scan, self._entries.list_of_orders)
        return ledger_pb2.ListChargesResponse(charges=map(_charge_to_wire, page), next_page_token=token)


def _id_in(metadata: Mapping[str, str], name: str) -> str:
    return limit_text(metadata.get(name, ""), name, max_length=_MAX_ID_LENGTH)


def _charge_from_wire(request: payment_pb2.ChargeRequest, metadata: Mapping[str, str]) -> ChargeRequest:
    """Convert the request. Raise InvalidArgument if the amount or the card is missing."""
    require_present(request.HasField("amount"), "amount")
    require_present(request.HasField("credit_card"), "credit_card")
    card = request.credit_card
    return ChargeRequest(
        request.amount.currency_code,
        request.amount.units,
        request.amount.nanos,
        Card(
            card.credit_card_number,
            card.credit_card_cvv,
            card.credit_card_expiration_year,
            card.credit_card_expiration_month,
        ),
        _id_in(metadata, "request-fingerprint"),
        _id_in(metadata, "purchase-id"),
    )


def _charge_to_wire(charge: Entry) -> ledger_pb2.CapturedCharge:
    payment = charge.payment
    digests = RecordDigests(
        purchase=digest(payment.purchase_id if payment else ""),
        request=digest(payment.request_fingerprint[:FINGERPRINT_LENGTH] if payment else ""),
        transaction=digest(charge.recorded_id),
    )
    return ledger_pb2.CapturedCharge(
        charge_key=charge.key,
        transaction_id=charge.transaction_id,
        amount=money_to_wire(payment.amount) if payment else None,
        recorded_at=time_to_wire(charge.recorded_at),
        digests=digests,
    )


def _outcome_to_wire(entry: Entry) -> ledger_pb2.ResolveOrFenceResponse:
    if entry.payment is None:
        return ledger_pb2.ResolveOrFenceResponse(fenced=ledger_pb2.Fenced(existing=entry.existing))
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
