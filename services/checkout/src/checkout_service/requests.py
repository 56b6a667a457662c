"""Requests to place an order: validation, fingerprints and scopes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chassis.errors import InvalidArgument
from chassis.values.email_addresses import require_email_address
from chassis.values.fields import require_text
from chassis.values.keys import HmacKeys
from chassis.values.money import Money, is_currency_code
from chassis.values.orders import Address, Card, check_address

MAX_USER_ID_LENGTH = 128
MAX_CARD_NUMBER_LENGTH = 64


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """A request to order the user's cart, not yet validated, with prices in `user_currency` (an ISO 4217 code).

    Attributes:
        key: the idempotency key; None if the caller sent none.
        expected_total: the total that the customer was shown; None if the caller sent none.
        fingerprints: the request's fingerprints, one per HMAC key, starting with the current key's. An order that an
            identical request has started has one of them.
        answer_by: the event-loop time by which the caller must have an answer.
    """

    user_id: str
    user_currency: str
    address: Address | None
    email: str
    card: Card | None = field(repr=False)
    key: str | None = None
    expected_total: Money | None = None
    fingerprints: Sequence[str] = ()
    answer_by: float = 0.0


def validate(request: OrderRequest, *, needs_card: bool = True) -> OrderRequest:
    """Validate a request and return it, with the domain of its e-mail address in ASCII. Quotes need no card.

    Raise InvalidArgument for the first invalid field. Payment decides whether the card can be charged.
    """
    require_text(request.user_id, "user_id", max_length=MAX_USER_ID_LENGTH)
    if not is_currency_code(request.user_currency):
        raise InvalidArgument.field("user_currency", "must be three capital letters (ISO 4217)")
    check_address(require_address(request), "address")
    email = require_email_address(request.email, "email")
    if needs_card:
        if request.card is None:
            raise InvalidArgument.field("credit_card", "must be given")
        require_text(request.card.number, "credit_card.credit_card_number", max_length=MAX_CARD_NUMBER_LENGTH)
    return request if email == request.email else replace(request, email=email)


def fingerprints(request: OrderRequest, hmac_keys: HmacKeys) -> list[str]:
    """Return hex HMACs of all fields except the card's security code, one per HMAC key, starting with the current key.

    Equal requests have equal fingerprints. Without the HMAC key, a fingerprint reveals nothing about the card.
    """
    address, card = request.address, request.card
    # Leave out the security code: it must never be stored, even hashed, and a retry that corrects it must still match.
    parts = [request.user_id, request.user_currency, request.email]
    if address is not None:
        parts += [address.street_address, address.city, address.state, address.country, str(address.zip_code)]
    if card is not None:
        parts += [card.digits, str(card.year), str(card.month)]
    # Prefix each part with its length, so that no two different requests share a canonical form.
    canonical = "".join(f"{len(part)}:{part}" for part in parts)
    return [digest.hex() for digest in hmac_keys.digests(canonical.encode())]


def require_address(request: OrderRequest) -> Address:
    if request.address is None:
        raise InvalidArgument.field("address", "must be given")
    return request.address


def scope_of(user_id: str, kind: str, key: str) -> str:
    """Return the scope for a user's key: a hex SHA-256 hash. `kind` is "key" for idempotency keys, "cart" for etags."""
    return hashlib.sha256(f"PlaceOrder\0{kind}\0{user_id}\0{key}".encode()).hexdigest()


def scope_of_key(request: OrderRequest) -> str:
    return scope_of(request.user_id, "key", request.key or "")
