"""Payment, shipping, e-mail and the cart's emptying: the calls that have effects, each under a key of the order."""

import re
import uuid
from collections.abc import Sequence
from typing import Protocol

import structlog

from chassis.errors import REFUSALS, DomainError, FieldViolation, InvalidArgument, NotFound, Unimplemented
from chassis.money import Money
from chassis.wire import money_to_wire
from checkout_service.codec import address_to_wire, card_to_wire, lines_to_wire
from checkout_service.domain import Address, Card, OrderLine, Refusal
from checkout_service.saga import Charged, Fenced, InDoubt, Refused, Released, Shipped, Unsupported
from shop import (
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    email_pb2,
    email_pb2_grpc,
    payment_pb2,
    payment_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)
from shop_internal import payment_ledger_pb2, payment_ledger_pb2_grpc

log = structlog.get_logger()

_REASON = re.compile(r"[A-Z][A-Z_]{0,62}")
_NUMBER = re.compile(r"[0-9](?:[ -]?[0-9]){2,}")


class Payment(Protocol):
    """Charges cards, each key once."""

    async def charge(
        self, key: str, amount: Money, card: Card, *, again: bool
    ) -> Charged | Refused | Fenced | Released | InDoubt | Unsupported:
        """Charge the card. `again`: this worker asked already, so only ask a peer that is known to keep keys."""

    async def resolve(self, key: str) -> Charged | Refused | Fenced | Released | InDoubt | Unsupported:
        """Tell what became of a charge, or fence it."""

    async def void(self, key: str) -> Released | Refused | InDoubt | Unsupported:
        """Release a charge."""


class Shipping(Protocol):
    """Ships orders, each key once."""

    async def ship(self, key: str, address: Address, lines: Sequence[OrderLine]) -> Shipped | Refused | InDoubt:
        """Ship what was ordered."""


class PaymentClient:
    """See `Payment`. The ledger's methods are our own payment's; a foreign one may know none of them."""

    def __init__(
        self,
        charges: payment_pb2_grpc.PaymentServiceStub,
        ledger: payment_ledger_pb2_grpc.PaymentLedgerStub,
    ) -> None:
        self._charges = charges
        self._ledger = ledger
        self._has_ledger: bool | None = None

    async def charge(
        self, key: str, amount: Money, card: Card, *, again: bool
    ) -> Charged | Refused | Fenced | Released | InDoubt | Unsupported:
        """Charge the card; see `Payment.charge`."""
        request = payment_pb2.ChargeRequest(amount=money_to_wire(amount), credit_card=card_to_wire(card))
        try:
            if again and not await self._keeps_keys():
                return Unsupported()
            reply = await self._charges.Charge(request, metadata=(("idempotency-key", key),))
        except DomainError as error:
            return _charge_failed(error)
        return Charged(reply.transaction_id)

    async def resolve(self, key: str) -> Charged | Refused | Fenced | Released | InDoubt | Unsupported:
        """Ask the ledger, which fences the key if it has no charge."""
        if self._has_ledger is False:
            return Unsupported()
        try:
            reply = await self._ledger.ResolveOrFence(payment_ledger_pb2.ResolveOrFenceRequest(charge_key=key))
        except Unimplemented:
            self._tell_missing()
            return Unsupported()
        except DomainError as error:
            return InDoubt(error.reason)
        self._has_ledger = True
        return _outcome(reply)

    async def void(self, key: str) -> Released | Refused | InDoubt | Unsupported:
        """Ask the ledger to release the charge."""
        try:
            await self._ledger.Void(payment_ledger_pb2.VoidRequest(charge_key=key))
        except Unimplemented:
            self._tell_missing()
            return Unsupported()
        except REFUSALS as error:
            return Refused(_refusal(error))
        except DomainError as error:
            return InDoubt(error.reason)
        return Released()

    async def _keeps_keys(self) -> bool:
        """Find out, once, by a Void that can't have an effect. Raises DomainError when there is no answer."""
        if self._has_ledger is None:
            try:
                await self._ledger.Void(payment_ledger_pb2.VoidRequest(charge_key=f"probe:{uuid.uuid4()}"))
            except Unimplemented:
                self._tell_missing()
            except NotFound:
                self._has_ledger = True
        return bool(self._has_ledger)

    def _tell_missing(self) -> None:
        if self._has_ledger is not False:
            log.warning("payment has no ledger: orders in doubt wait for their callers to repeat them")
        self._has_ledger = False


class ShippingClient:
    """See `Shipping`."""

    def __init__(self, stub: shipping_pb2_grpc.ShippingServiceStub, timeout_seconds: float) -> None:
        self._stub = stub
        self._timeout_seconds = timeout_seconds

    async def ship(self, key: str, address: Address, lines: Sequence[OrderLine]) -> Shipped | Refused | InDoubt:
        """Ship what was ordered."""
        request = shipping_pb2.ShipOrderRequest(address=address_to_wire(address), items=lines_to_wire(lines))
        metadata = (("idempotency-key", key),)
        try:
            reply = await self._stub.ShipOrder(request, timeout=self._timeout_seconds, metadata=metadata)
        except REFUSALS as error:
            return Refused(_refusal(error))
        except DomainError as error:
            return InDoubt(error.reason)
        return Shipped(reply.tracking_id)


class Mailer:
    """Sends confirmations. The e-mail's id derives from the order's, so a repeated one is the same e-mail."""

    def __init__(self, stub: email_pb2_grpc.EmailServiceStub) -> None:
        self._stub = stub

    async def confirm(self, email: str, answer: bytes) -> None:
        """Mail the order as it was answered. Raises a kind of chassis.errors."""
        order = checkout_pb2.PlaceOrderResponse.FromString(answer).order
        await self._stub.SendOrderConfirmation(email_pb2.SendOrderConfirmationRequest(email=email, order=order))


class CartEmptier:
    """Empties ordered carts."""

    def __init__(self, stub: cart_pb2_grpc.CartServiceStub) -> None:
        self._stub = stub

    async def empty(self, user_id: str, etag: str) -> None:
        """Empty the cart unless it changed since; one without an etag whatever it holds. Raises a kind of error."""
        metadata = (("if-match", etag),) if etag else ()
        await self._stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user_id), metadata=metadata)


def _outcome(
    reply: payment_ledger_pb2.ResolveOrFenceResponse,
) -> Charged | Refused | Fenced | Released | InDoubt:
    match reply.WhichOneof("outcome"):
        case "charged":
            return Charged(reply.charged.transaction_id)
        case "fenced":
            return Fenced()
        case "voided":
            return Released()
        case "declined":
            return Refused(Refusal("FailedPrecondition", _reason(reply.declined.reason), "the card was refused"))
        case _:
            return InDoubt("UNKNOWN_OUTCOME")


def _charge_failed(error: DomainError) -> Refused | Fenced | Released | InDoubt:
    match error.reason:
        case "CHARGE_FENCED":
            return Fenced()
        case "CHARGE_VOIDED":
            return Released()
        case "IDEMPOTENCY_KEY_REUSED":  # so there is a charge under the key
            return InDoubt(error.reason)
    return Refused(_refusal(error)) if isinstance(error, REFUSALS) else InDoubt(error.reason)


def _refusal(error: DomainError) -> Refusal:
    """The peer's decision in its own code, without any number that its words may quote."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind in REFUSALS)
    violations = error.violations if isinstance(error, InvalidArgument) else ()
    clean = tuple(FieldViolation(_hide_numbers(broken.field), _hide_numbers(broken.rule)) for broken in violations)
    return Refusal(kind, _reason(error.reason), _hide_numbers(error.message), clean)


def _reason(reason: str) -> str:
    return reason if _REASON.fullmatch(reason) else "REFUSED"


def _hide_numbers(text: str) -> str:
    return _NUMBER.sub("[number]", text)
