"""An order: what was asked for, what it costs, and what can become of it."""

import hashlib
import hmac
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from chassis.errors import FailedPrecondition, FieldViolation, InvalidArgument
from chassis.fields import limit_text, require_between, require_email_address, require_text
from chassis.money import Money, is_currency_code, round_to_digits, total

MAX_USER_ID_LENGTH = 128
MAX_ADDRESS_TEXT_LENGTH = 256
MAX_CARD_NUMBER_LENGTH = 64
_MAX_INT32 = 2**31 - 1

# ISO 4217: decimal digits of the minor unit, where they aren't two.
_MINOR_UNIT_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"), 0),
    **dict.fromkeys(("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}


class CartEmpty(FailedPrecondition):
    """There is nothing in the cart to order."""


class ProductWithdrawn(FailedPrecondition):
    """A product in the cart is no longer in the catalog."""


class QuoteRefused(FailedPrecondition):
    """Shipping won't deliver this cart to this address."""


class NothingToPay(FailedPrecondition):
    """The order's total is not above zero, and only a charge can place an order."""


class State(StrEnum):
    """What has become of an order. CHARGING and VOIDING are open: some worker is to move them on."""

    CHARGING = "CHARGING"
    SHIPPED = "SHIPPED"
    DONE = "DONE"
    DECLINED = "DECLINED"
    VOIDING = "VOIDING"
    VOIDED = "VOIDED"
    NEEDS_REFUND = "NEEDS_REFUND"
    ABANDONED = "ABANDONED"


OPEN = frozenset({State.CHARGING, State.VOIDING})
PLACED = frozenset({State.SHIPPED, State.DONE})
REFUSED = frozenset({State.DECLINED, State.VOIDED, State.NEEDS_REFUND})


@dataclass(frozen=True, slots=True)
class Address:
    """Where an order is shipped to."""

    street_address: str
    city: str
    state: str
    country: str
    zip_code: int


@dataclass(frozen=True, slots=True)
class Card:
    """A card on its way to Payment. It lives in memory only; its repr tells nothing."""

    number: str = field(repr=False)
    cvv: int = field(repr=False)
    expiration_year: int = field(repr=False)
    expiration_month: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """What a customer asks for: the cart of a user, in a currency (ISO 4217), to an address, paid by a card."""

    user_id: str
    user_currency: str
    address: Address | None
    email: str
    card: Card | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class CartLine:
    """So many of a product."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Cart:
    """A cart's lines, and the etag that changes whenever they do; a foreign cart has none."""

    lines: tuple[CartLine, ...]
    etag: str | None


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A line of the cart and what all of it costs, in the order's currency, rounded to its minor unit."""

    product_id: str
    quantity: int
    cost: Money


@dataclass(frozen=True, slots=True)
class Order:
    """An order with its prices frozen. It holds no card.

    Attributes:
        cart_etag: of the cart that was ordered; empty when the cart has none.
    """

    order_id: str
    user_id: str
    email: str
    cart_etag: str
    address: Address
    lines: tuple[OrderLine, ...]
    shipping_cost: Money

    @property
    def total(self) -> Money:
        """What is charged: exactly the sum of what the order shows."""
        return total(self.shipping_cost.currency_code, [self.shipping_cost, *(line.cost for line in self.lines)])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order won't be placed, as its callers get it, now and at every repetition.

    Attributes:
        kind: the name of a kind in chassis.errors.
        violations: of an InvalidArgument, the broken fields.
    """

    kind: str
    reason: str
    message: str
    violations: tuple[FieldViolation, ...] = ()


class Quotes(Protocol):
    """What a shop asks for before it takes an order; nothing here has an effect."""

    async def cart(self, user_id: str) -> Cart:
        """Read the user's cart."""

    async def unit_prices(self, product_ids: Sequence[str]) -> list[Money]:
        """Read each product's price. Raises ProductWithdrawn."""

    async def shipping(self, address: Address, lines: Sequence[CartLine]) -> Money:
        """Ask for the cost of shipping. Raises QuoteRefused."""

    async def convert(self, amounts: Sequence[Money], to_code: str) -> list[Money]:
        """Express each amount in a currency, to the nano. Raises InvalidArgument and OutOfRange."""


def check(request: OrderRequest) -> tuple[Address, Card]:
    """Check a request by itself. Raises InvalidArgument for the first field that breaks a rule."""
    require_text(request.user_id, "user_id", max_length=MAX_USER_ID_LENGTH)
    if not is_currency_code(request.user_currency):
        raise InvalidArgument.field("user_currency", "must be three capital letters (ISO 4217)")
    address = request.address
    if address is None:
        raise InvalidArgument.field("address", "must be given")
    for name in ("street_address", "city", "state", "country"):
        limit_text(getattr(address, name), f"address.{name}", max_length=MAX_ADDRESS_TEXT_LENGTH)
    require_between(address.zip_code, "address.zip_code", 0, _MAX_INT32)
    require_email_address(request.email, "email")
    if request.card is None:
        raise InvalidArgument.field("credit_card", "must be given")
    require_text(request.card.number, "credit_card.credit_card_number", max_length=MAX_CARD_NUMBER_LENGTH)
    return address, request.card


def fingerprint(request: OrderRequest, hmac_key: bytes) -> str:
    """HMAC-SHA256 over every field but the card's security code, which is stored in no form: hexadecimal.

    Two requests with the same fingerprint ask for the same. Without the key it tells nothing about the card.
    """
    address, card = request.address, request.card
    parts = [request.user_id, request.user_currency, request.email]
    if address is not None:
        parts += [address.street_address, address.city, address.state, address.country, str(address.zip_code)]
    if card is not None:
        digits = card.number.replace(" ", "").replace("-", "")
        parts += [digits, str(card.expiration_year), str(card.expiration_month)]
    # A length before each part: no two requests share a canonical form.
    canonical = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.digest(hmac_key, canonical.encode(), "sha256").hex()


def new_order_id() -> str:
    """A UUID of version 7: ids sort by the time they were made."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    return str(uuid.UUID(int=(milliseconds << 80 | random) & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62))


def charge_key(order_id: str, attempt: int) -> str:
    """The key of one attempt's charge: an attempt that was fenced is never charged."""
    return f"{order_id}:{attempt}"


def rounded(amount: Money) -> Money:
    """Round half-even to the currency's minor unit. Raises AmountOutOfRange beyond 64-bit units."""
    return round_to_digits(amount, _MINOR_UNIT_DIGITS.get(amount.currency_code, 2)).in_range()


def check_total(order: Order) -> Order:
    """The same order. Raises AmountOutOfRange, or NothingToPay when its total is not above zero."""
    if order.total.in_range().total_nanos <= 0:
        raise NothingToPay("the order costs nothing, so there is nothing to charge")
    return order


def require_lines(cart: Cart) -> tuple[CartLine, ...]:
    """The cart's lines. Raises CartEmpty."""
    if not cart.lines:
        raise CartEmpty("the cart is empty")
    return cart.lines


def scope_of(user_id: str, kind: str, key: str) -> str:
    """Stands for a key of a user's PlaceOrder; the kind keeps given keys and etags apart. Hexadecimal, 64 digits."""
    return hashlib.sha256(f"PlaceOrder\0{kind}\0{user_id}\0{key}".encode()).hexdigest()
