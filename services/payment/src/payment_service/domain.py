"""Charges, and the ledger that records one outcome per idempotency key.

Each key gets one entry, forever. The first write makes the entry a charge, a decline or a fence. Every later write
returns the existing entry, so repeating a charge does not charge again, and a charge that arrives after a fence fails.
"""

import hmac
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Protocol

from chassis.errors import Aborted, FailedPrecondition, IdempotencyKeyReused, InvalidArgument, NotFound, Unavailable
from chassis.values.keys import HmacKeys
from chassis.values.money import Money, parse_money
from chassis.values.orders import Card
from chassis.values.paging import KeyedEntry
from payment_service import cards
from payment_service.cards import Brand

# The UUID namespace for transaction ids. Never change it: repeated charges would get different ids.
_TRANSACTION_IDS = uuid.UUID("7c1f0e0e-6a53-4d6c-9f0b-5f3a8a1f2b47")


class CardDeclined(FailedPrecondition):
    """The card is well-formed but was not charged; the reason is one of `cards.Decline`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the card was declined: {reason.lower().replace('_', ' ')}", reason=reason)


class ChargeFenced(Aborted):
    """The key was fenced before this charge arrived, so a new charge needs a new key."""


class ChargeVoided(FailedPrecondition):
    """The charge under this key was voided."""


class CartOrdered(FailedPrecondition):
    """Another charge has already paid for this purchase. Checkout's journal may have lost that charge's order."""

    def __init__(self) -> None:
        super().__init__("this cart was ordered already, by a different request")


class ChargeNotFound(NotFound):
    """There is no charge under this key."""


class LedgerUnavailable(Unavailable):
    """The ledger can't be read or written. A write's outcome is unknown until the call is retried with the same key."""

    def __init__(self) -> None:
        super().__init__("the payment ledger is unavailable; the outcome is unknown, retry with the same key")


class State(StrEnum):
    """The recorded outcome for a key."""

    CHARGED = "CHARGED"
    DECLINED = "DECLINED"
    FENCED = "FENCED"
    VOIDED = "VOIDED"


@dataclass(frozen=True, slots=True)
class Payment:
    """The parts of a requested charge that the ledger stores.

    Attributes:
        card_hmac: an HMAC of the card, which reveals nothing about the card to anyone without the HMAC key.
        hmac_key_id: identifies the HMAC key that produced `card_hmac`; None in entries that older releases wrote.
        brand: the card's brand; None if no brand issues such card numbers, so the charge is declined.
        request_fingerprint: the fingerprint of the request that the caller was serving; empty if the caller sent none.
        purchase_id: the caller's id for the purchase that the charge pays for; empty if the caller sent none.
    """

    amount: Money
    card_hmac: bytes
    hmac_key_id: str | None
    brand: str | None
    request_fingerprint: str = ""
    purchase_id: str = ""


@dataclass(frozen=True)
class Entry(KeyedEntry):
    """The ledger's entry for a key.

    Attributes:
        payment: the requested charge; None if the key was fenced before a charge arrived.
        reason: the decline reason that callers receive; None if the charge was not declined.
    """

    state: State
    payment: Payment | None = None
    reason: str | None = None

    @cached_property
    def transaction_id(self) -> str:
        """The transaction id, derived from the key so that it stays the same even if the ledger is lost."""
        return str(uuid.uuid5(_TRANSACTION_IDS, self.key))


class Ledger(Protocol):
    """Stores entries durably: every entry a method returns is on disk. Every method may raise LedgerUnavailable."""

    async def record(self, entry: Entry) -> Entry:
        """Store the entry unless its key already has an entry. Return the key's entry.

        Raise CartOrdered if another charge has already paid for the same purchase.
        """

    async def find(self, key: str) -> Entry | None: ...

    async def void(self, key: str) -> Entry | None:
        """Change the key's entry to VOIDED if it is CHARGED. Return the key's entry."""


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """A charge request, not yet validated. The amount is in whole units and nanos (1e-9 of a unit).

    Attributes:
        fingerprint: the caller's request fingerprint, stored for `resolve_or_fence`. Retries may send a different one.
        purchase_id: the purchase that the charge pays for; empty if unknown. Only one charge per purchase is captured.
    """

    currency_code: str
    units: int
    nanos: int
    card: Card
    fingerprint: str = ""
    purchase_id: str = ""


@dataclass(frozen=True, slots=True)
class PaymentProcessor:
    """Accepts or declines charges according to the card rules, and records each decision in the ledger.

    Attributes:
        hmac_keys: the keys for card HMACs. Once a key is removed, retries of charges recorded with that key fail.
        count_decline: called with the reason, once per idempotency key whose charge is declined.
    """

    ledger: Ledger
    hmac_keys: HmacKeys
    accepted_brands: Collection[Brand]
    today: Callable[[], date]
    count_decline: Callable[[str], None]

    async def charge(self, key: str, request: ChargeRequest) -> Entry:
        """Charge at most once per key and return the CHARGED entry.

        Declines are recorded, so that retries are declined too, even on a later date or with different settings.
        Malformed requests are not recorded, because every retry is just as malformed. If the key has an entry, that
        entry decides the outcome, even if the rules have since changed.

        Raise InvalidArgument if the request is malformed, CardDeclined if the card is declined, CartOrdered if the
        purchase is already paid for, LedgerUnavailable if the ledger fails, and IdempotencyKeyReused, ChargeFenced or
        ChargeVoided if the key already belongs to a different charge, a fence or a voided charge.
        """
        card = request.card  # the HMAC leaves out the security code, which must never be stored, not even hashed
        card_hmacs = self.hmac_keys.digests(f"{card.digits}|{card.year}|{card.month}".encode())
        try:
            decision = self._decide(key, request, card_hmacs[0])
        except InvalidArgument:
            found = await self.ledger.find(key)
            if found is None:
                raise
            return _require_charged(found, request, card_hmacs)
        recorded = await self.ledger.record(decision)
        if decision.reason is not None and not recorded.existing:
            self.count_decline(decision.reason)
        return _require_charged(recorded, request, card_hmacs)

    async def resolve_or_fence(self, key: str) -> Entry:
        """Return the key's entry. If there is none, fence the key so that no charge under it can ever succeed."""
        return await self.ledger.record(Entry(key, State.FENCED))

    async def void(self, key: str) -> Entry:
        """Void the key's charge, unless it is voided already, and return it. Raise ChargeNotFound if there is none."""
        entry = await self.ledger.void(key)
        if entry is None or entry.state is not State.VOIDED:
            raise ChargeNotFound("there is no charge under this key")
        return entry

    def _decide(self, key: str, request: ChargeRequest, card_hmac: bytes) -> Entry:
        amount = parse_money(request.currency_code, request.units, request.nanos, field="amount")
        if amount.total_nanos <= 0:
            raise InvalidArgument.field("amount", "must be more than zero")
        cards.check_format(request.card, "credit_card")
        brand = cards.brand_of(request.card.digits)
        payment = Payment(amount, card_hmac, self.hmac_keys.current_id, brand, request.fingerprint, request.purchase_id)
        decline = cards.decline_reason(request.card, brand, self.accepted_brands, self.today())
        return Entry(key, State.DECLINED if decline else State.CHARGED, payment, decline)


def _require_charged(entry: Entry, request: ChargeRequest, card_hmacs: Collection[bytes]) -> Entry:
    """Return the entry if it is the requested charge; otherwise raise the error that `charge` documents."""
    if entry.payment is None:
        raise ChargeFenced("the key was fenced before this charge arrived; a new charge needs a new key")
    amount = Money.of(request.currency_code, request.units, request.nanos)
    same_card = any(hmac.compare_digest(entry.payment.card_hmac, card_hmac) for card_hmac in card_hmacs)
    purchases = {entry.payment.purchase_id, request.purchase_id} - {""}  # older releases stored no purchase id
    if entry.payment.amount != amount or not same_card or len(purchases) > 1:
        raise IdempotencyKeyReused
    if entry.state is State.VOIDED:
        raise ChargeVoided("the charge under this key was voided")
    if entry.reason is not None:
        raise CardDeclined(entry.reason)
    return entry
