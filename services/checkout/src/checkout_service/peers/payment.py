"""Calls the payment service, and converts its responses and errors to outcomes."""

from chassis.errors import DomainError, Unimplemented
from chassis.rpc.status import reason_from_peer
from chassis.rpc.wire import card_to_wire, money_to_wire
from chassis.values.digests import FINGERPRINT_LENGTH
from chassis.values.orders import Card
from checkout_service.commands import (
    Charged,
    ChargeOutcome,
    Fenced,
    InDoubt,
    KeyReused,
    Refused,
    Unsupported,
    Voided,
    VoidOutcome,
)
from checkout_service.domain import Order, Refusal
from checkout_service.peers.errors import refused_or_in_doubt
from checkout_service.peers.internal_service import InternalService
from checkout_service.ports import Payment
from shop import payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_internal import payment_ledger_pb2
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub

_OUTCOMES: dict[str, ChargeOutcome] = {
    "CHARGE_FENCED": Fenced(existing=True),
    "CHARGE_VOIDED": Voided(),
    "IDEMPOTENCY_KEY_REUSED": KeyReused(),
}


class PaymentClient(Payment):
    """Calls the public payment service and its internal ledger, which other implementations do not offer."""

    def __init__(self, charges: PaymentServiceStub, ledger: PaymentLedgerStub) -> None:
        self._charges = charges
        self._ledger = ledger
        self._ledger_service = InternalService("shop.internal.PaymentLedger")

    async def charge(self, key: str, order: Order, card: Card, *, fingerprint: str, retry: bool) -> ChargeOutcome:
        request = payment_pb2.ChargeRequest(amount=money_to_wire(order.total), credit_card=card_to_wire(card))
        try:
            # Another implementation may ignore keys, so a second call could charge the card twice.
            if retry and not await self._ledger_service.exists(self._ledger.Void, payment_ledger_pb2.VoidRequest()):
                return Unsupported()
            metadata = (
                ("idempotency-key", key),
                ("request-fingerprint", fingerprint[:FINGERPRINT_LENGTH]),
                ("purchase-id", order.purchase_id),
            )
            call = self._charges.Charge(request, metadata=metadata)
            reply = await call
        except DomainError as error:
            return _OUTCOMES.get(error.reason) or refused_or_in_doubt(error)
        trailers = dict(await call.trailing_metadata() or ())
        return Charged(reply.transaction_id, float(trailers.get("charged-at") or 0))

    async def resolve(self, key: str, order: Order, *, fingerprint: str) -> ChargeOutcome:
        request = payment_ledger_pb2.ResolveOrFenceRequest(charge_key=key)
        try:
            reply = await self._ledger_service.call(self._ledger.ResolveOrFence, request)
        except Unimplemented:
            return Unsupported()
        except DomainError as error:
            return InDoubt(error.reason)
        return _outcome_of(reply, order, fingerprint)

    async def void(self, key: str) -> VoidOutcome:
        try:
            await self._ledger_service.call(self._ledger.Void, payment_ledger_pb2.VoidRequest(charge_key=key))
        except Unimplemented:
            return Unsupported()
        except DomainError as error:
            return refused_or_in_doubt(error)
        return Voided()


def _outcome_of(reply: payment_ledger_pb2.ResolveOrFenceResponse, order: Order, fingerprint: str) -> ChargeOutcome:
    match reply.WhichOneof("outcome"):
        case "charged":
            charged = reply.charged
            # Older releases recorded charges with the full fingerprint or none, and without a purchase id.
            same_request = fingerprint.startswith(charged.request_fingerprint)
            same_purchase = len({charged.purchase_id, order.purchase_id} - {""}) <= 1
            is_own = same_request and same_purchase and charged.amount == money_to_wire(order.total)
            outcome = Charged if is_own else KeyReused
            return outcome(charged.transaction_id, charged.recorded_at.ToNanoseconds() / 1e9)
        case "fenced":
            return Fenced(reply.fenced.existing)
        case "voided":
            return Voided()
        case _:
            reason = reason_from_peer(reply.declined.reason)
            return Refused(Refusal("FailedPrecondition", reason, "the card was declined"))
