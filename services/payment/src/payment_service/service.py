"""Translates Charge and the ledger's RPCs between the wire and the domain."""

import uuid

import structlog

from chassis.calls import metadata_value
from chassis.failpoints import Failpoints
from chassis.fields import parse_idempotency_key, require_present, require_text
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from payment_service import failpoints
from payment_service.cards import Card
from payment_service.domain import ChargeOrder, Entry, State, Till
from shop import payment_pb2, payment_pb2_grpc
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal import payment_ledger_pb2_grpc as ledger_pb2_grpc

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255


class PaymentService(payment_pb2_grpc.PaymentServiceServicer):
    """shop.PaymentService."""

    def __init__(self, till: Till, active: Failpoints) -> None:
        self._till = till
        self._failpoints = active

    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        """Charge a card, once for each idempotency-key."""
        key = idempotency_key(context)
        order = to_order(request)
        await self._failpoints.reach(failpoints.BEFORE_CHARGE)
        entry = await self._till.charge(key, order)
        log.info("charged", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.AFTER_CHARGE)
        return payment_pb2.ChargeResponse(transaction_id=entry.transaction_id)


class PaymentLedger(ledger_pb2_grpc.PaymentLedgerServicer):
    """shop.internal.PaymentLedger."""

    def __init__(self, till: Till, active: Failpoints) -> None:
        self._till = till
        self._failpoints = active

    async def ResolveOrFence(
        self, request: ledger_pb2.ResolveOrFenceRequest, _context: ServicerContext
    ) -> ledger_pb2.ResolveOrFenceResponse:
        """Answer the charge made under a key, or fence the key."""
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.BEFORE_RESOLVE_OR_FENCE)
        entry = await self._till.resolve_or_fence(key)
        log.info("resolved", transaction_id=entry.transaction_id, state=entry.state)
        await self._failpoints.reach(failpoints.AFTER_RESOLVE_OR_FENCE)
        return to_outcome(entry)

    async def Void(self, request: ledger_pb2.VoidRequest, _context: ServicerContext) -> ledger_pb2.VoidResponse:
        """Release a charge."""
        key = require_text(request.charge_key, "charge_key", max_length=_MAX_KEY_LENGTH)
        await self._failpoints.reach(failpoints.BEFORE_VOID)
        entry = await self._till.void(key)
        log.info("voided", transaction_id=entry.transaction_id)
        await self._failpoints.reach(failpoints.AFTER_VOID)
        return ledger_pb2.VoidResponse(transaction_id=entry.transaction_id)


def idempotency_key(context: ServicerContext) -> str:
    """Read the call's idempotency-key; a call without one gets a key of its own."""
    given = metadata_value(context, "idempotency-key")
    return str(uuid.uuid4()) if given is None else parse_idempotency_key(given)


def to_order(request: payment_pb2.ChargeRequest) -> ChargeOrder:
    """Raises InvalidArgument when the amount or the card is missing."""
    require_present(request.HasField("amount"), "amount")
    require_present(request.HasField("credit_card"), "credit_card")
    card = request.credit_card
    return ChargeOrder(
        request.amount.currency_code,
        request.amount.units,
        request.amount.nanos,
        Card(
            number=card.credit_card_number,
            cvv=card.credit_card_cvv,
            year=card.credit_card_expiration_year,
            month=card.credit_card_expiration_month,
        ),
    )


def to_outcome(entry: Entry) -> ledger_pb2.ResolveOrFenceResponse:
    """What became of a key."""
    if entry.payment is None:
        return ledger_pb2.ResolveOrFenceResponse(fenced=ledger_pb2.Fenced())
    if entry.reason is not None:
        return ledger_pb2.ResolveOrFenceResponse(declined=ledger_pb2.Declined(reason=entry.reason))
    if entry.state is State.VOIDED:
        return ledger_pb2.ResolveOrFenceResponse(voided=ledger_pb2.Voided(transaction_id=entry.transaction_id))
    charged = ledger_pb2.Charged(transaction_id=entry.transaction_id, amount=money_to_wire(entry.payment.amount))
    return ledger_pb2.ResolveOrFenceResponse(charged=charged)
