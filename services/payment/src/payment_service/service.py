"""Servicers for shop.PaymentService and shop.internal.PaymentLedger."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from chassis.rpc.calls import ServicerContext, idempotency_key, metadata_of
from chassis.rpc.wire import card_from_wire, money_to_wire, parse_wire_time, time_to_wire
from chassis.sql.keyed_store import KeyedStore
from chassis.values import paging
from chassis.values.digests import FINGERPRINT_LENGTH, digest
from chassis.values.fields import limit_text, require_present, require_text
from payment_service.domain import ChargeRequest, Entry, PaymentProcessor, State
from shop import payment_pb2, payment_pb2_grpc
from shop_internal import payment_ledger_pb2 as pb2
from shop_internal import payment_ledger_pb2_grpc as pb2_grpc
from shop_internal.record_digests_pb2 import RecordDigests

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255
_MAX_ID_LENGTH = 64


@dataclass(frozen=True)
class PaymentService(payment_pb2_grpc.PaymentServiceServicer, pb2_grpc.PaymentLedgerServicer):
    """Serves the public API, and an internal API for reconciliation and for resolving charges of unknown outcome."""

    _processor: PaymentProcessor
    _entries: KeyedStore[Entry]

    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        metadata = metadata_of(context)
        key = idempotency_key(metadata) or str(uuid.uuid4())
        charge = _charge_from_wire(request, metadata)
        entry = await self._processor.charge(key, charge)
        if entry.existing:  # send the charge's time, because shipping may have deleted the shipment of an old charge
            context.set_trailing_metadata((("charged-at", f"{entry.recorded_at:.6f}"),))
        log.debug("charged", transaction_id=entry.transaction_id)
        return payment_pb2.ChargeResponse(transaction_id=entry.transaction_id)

    async def ResolveOrFence(
        self, request: pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> pb2.ResolveOrFenceResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        entry = await self._processor.resolve_or_fence(key)
        log.info("resolved", transaction_id=entry.transaction_id, state=entry.state)
        return _outcome_to_wire(entry)

    async def Void(self, request: pb2.VoidRequest, _context: ServicerContext) -> pb2.VoidResponse:
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        entry = await self._processor.void(key)
        log.info("voided", transaction_id=entry.transaction_id)
        return pb2.VoidResponse(transaction_id=entry.transaction_id)

    async def ListCharges(self, request: pb2.ListChargesRequest, _context: ServicerContext) -> pb2.ListChargesResponse:
        since = parse_wire_time(request.since, field="since")
        page, token = await paging.read_page(request, since, self._entries.scan, self._entries.list_of_orders)
        return pb2.ListChargesResponse(charges=map(_charge_to_wire, page), next_page_token=token)


def _id_in(metadata: Mapping[str, str], name: str) -> str:
    return limit_text(metadata.get(name, ""), name, max_length=_MAX_ID_LENGTH)


def _charge_from_wire(request: payment_pb2.ChargeRequest, metadata: Mapping[str, str]) -> ChargeRequest:
    """Convert the request. Raise InvalidArgument if the amount or the card is missing."""
    require_present(request.HasField("amount"), "amount")
    require_present(request.HasField("credit_card"), "credit_card")
    return ChargeRequest(
        request.amount.currency_code,
        request.amount.units,
        request.amount.nanos,
        card_from_wire(request.credit_card),
        _id_in(metadata, "request-fingerprint"),
        _id_in(metadata, "purchase-id"),
    )


def _charge_to_wire(charge: Entry) -> pb2.CapturedCharge:
    payment = charge.payment
    digests = RecordDigests(
        purchase=digest(payment.purchase_id if payment else ""),
        request=digest(payment.request_fingerprint[:FINGERPRINT_LENGTH] if payment else ""),
        transaction=digest(charge.recorded_id or "none"),
    )
    return pb2.CapturedCharge(
        charge_key=charge.key,
        transaction_id=charge.transaction_id,
        amount=money_to_wire(payment.amount) if payment else None,
        recorded_at=time_to_wire(charge.recorded_at),
        digests=digests,
    )


def _outcome_to_wire(entry: Entry) -> pb2.ResolveOrFenceResponse:
    if entry.payment is None:
        return pb2.ResolveOrFenceResponse(fenced=pb2.Fenced(existing=entry.existing))
    if entry.reason is not None:
        return pb2.ResolveOrFenceResponse(declined=pb2.Declined(reason=entry.reason))
    if entry.state is State.VOIDED:
        return pb2.ResolveOrFenceResponse(voided=pb2.Voided(transaction_id=entry.transaction_id))
    charged = pb2.Charged(
        transaction_id=entry.transaction_id,
        amount=money_to_wire(entry.payment.amount),
        request_fingerprint=entry.payment.request_fingerprint,
        purchase_id=entry.payment.purchase_id,
        recorded_at=time_to_wire(entry.recorded_at),
    )
    return pb2.ResolveOrFenceResponse(charged=charged)
