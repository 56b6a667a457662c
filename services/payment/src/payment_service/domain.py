"""Charges and the ledger that decides each of them once.

A key has one entry for ever. Whoever writes it first, a charge, a decline or a fence, decides; everybody else gets
that entry back. So a repeated charge is one charge, and a charge that comes after its fence fails.
"""

import hmac
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Protocol

from chassis.errors import Aborted, FailedPrecondition, IdempotencyKeyReused, InvalidArgument, NotFound, Unavailable
from chassis.money import Money, parse_money
from payment_service import cards
from payment_service.cards import Brand, Card

_TRANSACTIONS = uuid.UUID("7c1f0e0e-6a53-4d6c-9f0b-5f3a8a1f2b47")


class CardDeclined(FailedPrecondition):
    """A well-formed card that this shop does not charge; the reason is one of `cards.Decline`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the card was declined: {reason.lower().replace('_', ' ')}", reason=reason)


class ChargeFenced(Aborted):
    """The key was given up before this charge came; another charge needs another key."""


class ChargeVoided(FailedPrecondition):
    """The charge under this key was released."""


class ChargeNotFound(NotFound):
    """Nothing was charged under this key."""


class LedgerUnavailable(Unavailable):
    """The ledger does not answer. What was asked may have been done: the same key tells."""


class State(StrEnum):
    """What was decided about a key."""

    CHARGED = "CHARGED"
    DECLINED = "DECLINED"
    FENCED = "FENCED"
    VOIDED = "VOIDED"


@dataclass(frozen=True, slots=True)
class Payment:
    """What a ledger knows of a charge that was asked for.

    Attributes:
        card_hmac: tells whether two requests gave the same card; without the HMAC's key it tells nothing.
        brand: None for a card of no known brand, which is declined.
    """

    amount: Money
    card_hmac: bytes
    brand: str | None
    last_four: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger's entry for a key.

    Attributes:
        payment: None when the key was fenced before anything was asked.
        reason: why it was declined, as callers get it; else None.
    """

    key: str
    state: State
    payment: Payment | None = None
    reason: str | None = None

    @property
    def transaction_id(self) -> str:
        """Derived from the key, so that even a ledger that was lost would give the same one again."""
        return str(uuid.uuid5(_TRANSACTIONS, self.key))


class Ledger(Protocol):
    """Where entries are kept. What a method returns is on disk; all raise LedgerUnavailable."""

    async def record(self, entry: Entry) -> Entry:
        """Store the entry unless its key has one; returns the one that the key has now."""

    async def find(self, key: str) -> Entry | None:
        """Look an entry up."""

    async def void(self, key: str) -> Entry | None:
        """Turn a CHARGED entry into a VOIDED one, leave any other; returns what the key has now."""

    async def check(self) -> None:
        """Return if the ledger answers at once."""


@dataclass(frozen=True, slots=True)
class ChargeOrder:
    """A charge as it was asked for, unchecked: Money's parts, in ISO 4217, whole units and nanos (1e-9), and a card."""

    currency_code: str
    units: int
    nanos: int
    card: Card


@dataclass(frozen=True, slots=True)
class Till:
    """Charges cards: decides by the rules, records in the ledger.

    Attributes:
        hmac_key: of the HMAC over cards. With another key, repeats of older charges no longer match and are refused.
    """

    ledger: Ledger
    hmac_key: bytes = field(repr=False)
    accepted_brands: Collection[Brand]
    today: Callable[[], date]

    async def charge(self, key: str, order: ChargeOrder) -> Entry:
        """Charge once per key; returns the CHARGED entry.

        A decline depends on the day and on settings, so it is recorded: a duplicate that comes late is declined too.
        A malformed request is not, as every duplicate is as malformed; but a key that has an entry is answered from
        it before any rule is, for the rules may have changed since.

        Raises InvalidArgument, CardDeclined, IdempotencyKeyReused, ChargeFenced, ChargeVoided.
        """
        card_hmac = self._card_hmac(order.card)
        try:
            asked = self._decide(key, order, card_hmac)
        except InvalidArgument:
            found = await self.ledger.find(key)
            if found is None:
                raise
            return _settle(found, order, card_hmac)
        return _settle(await self.ledger.record(asked), order, card_hmac)

    async def resolve_or_fence(self, key: str) -> Entry:
        """Tell what became of a charge, or make sure that nothing ever will."""
        return await self.ledger.record(Entry(key, State.FENCED))

    async def void(self, key: str) -> Entry:
        """Release a charge, once; returns the VOIDED entry. Raises ChargeNotFound when nothing was charged."""
        entry = await self.ledger.void(key)
        if entry is None or entry.state is not State.VOIDED:
            raise ChargeNotFound("there is no charge under this key")
        return entry

    def _decide(self, key: str, order: ChargeOrder, card_hmac: bytes) -> Entry:
        amount = parse_money(order.currency_code, order.units, order.nanos, field="amount")
        if amount.total_nanos <= 0:
            raise InvalidArgument.field("amount", "must be more than zero")
        cards.check_form(order.card, "credit_card")
        payment = Payment(amount, card_hmac, cards.brand_of(order.card.digits), order.card.last_four)
        decline = cards.why_declined(order.card, self.accepted_brands, self.today())
        return Entry(key, State.DECLINED if decline else State.CHARGED, payment, decline)

    def _card_hmac(self, card: Card) -> bytes:
        """HMAC-SHA256 of `<digits>|<year>|<month>`: the security code is no part of anything that is stored."""
        return hmac.digest(self.hmac_key, f"{card.digits}|{card.year}|{card.month}".encode(), "sha256")


def _settle(entry: Entry, order: ChargeOrder, card_hmac: bytes) -> Entry:
    """Answer a request by its key's entry, which another request may have made."""
    if entry.payment is None:
        raise ChargeFenced("the charge under this key was given up")
    amount = Money.of(order.currency_code, order.units, order.nanos)
    if entry.payment.amount != amount or not hmac.compare_digest(entry.payment.card_hmac, card_hmac):
        raise IdempotencyKeyReused
    if entry.state is State.VOIDED:
        raise ChargeVoided("the charge under this key was voided")
    if entry.reason is not None:
        raise CardDeclined(entry.reason)
    return entry
