"""Orders: requests and their validation, prices, keys, and the states of an order."""

import base64
import hashlib
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from chassis.errors import FailedPrecondition, FieldViolation
from chassis.values.addresses import Address
from chassis.values.money import Money, total

_RANDOM_ID_VERSION = 7


class CartEmpty(FailedPrecondition):
    """The cart has no items to order."""


class ProductWithdrawn(FailedPrecondition):
    """A product in the cart is no longer in the catalog."""


class QuoteRefused(FailedPrecondition):
    """Shipping does not deliver this cart to this address."""


class NothingToPay(FailedPrecondition):
    """The order's total is not above zero, so there is nothing to charge."""


class State(StrEnum):
    """State of an order. CHARGING and VOIDING are open: a worker has to move the order on."""

    CHARGING = "CHARGING"
    SHIPPED = "SHIPPED"
    DONE = "DONE"
    DECLINED = "DECLINED"
    VOIDING = "VOIDING"
    VOIDED = "VOIDED"
    NEEDS_REFUND = "NEEDS_REFUND"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    ABANDONED = "ABANDONED"
    SETTLED = "SETTLED"
    """Closed by an operator: it neither holds its cart nor changes any more."""


OPEN = (State.CHARGING, State.VOIDING)
PLACED = frozenset({State.SHIPPED, State.DONE})
NEEDS_OPERATOR = frozenset({State.NEEDS_REFUND, State.NEEDS_REVIEW})
REFUSED = frozenset({State.DECLINED, State.VOIDED, State.SETTLED}) | NEEDS_OPERATOR

# In these states nothing is charged, and the cart may be ordered again. In any other state but SETTLED an order holds
# its cart.
RELEASED_CART = frozenset({State.ABANDONED, State.DECLINED, State.VOIDED})

# A lost order is recorded again for changes to these states only: its attempt is charged, so no later one is.
RESTORABLE = frozenset({State.SHIPPED, State.VOIDING, State.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True)
class Card:
    """A card on its way to payment. It exists in memory only, and its repr is empty."""

    number: str = field(repr=False)
    cvv: int = field(repr=False)
    expiration_year: int = field(repr=False)
    expiration_month: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class CartLine:
    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Cart:
    """A cart's lines, and the etag that changes whenever they do; None if the cart service has no etags.

    A foreign cart service has neither of the others.

    Attributes:
        ordered_etag: the `cart_generation` of the order that emptied the cart.
        generation: stays while items are added or changed, and is new after the removal of an order's items. That of an
            ordered cart, if an order emptied it.
    """

    lines: tuple[CartLine, ...]
    etag: str | None
    ordered_etag: str | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A product, its quantity, and the cost of the line in the order's currency, rounded to its minor unit."""

    product_id: str
    quantity: int
    cost: Money


@dataclass(frozen=True)
class Order:
    """An order with frozen prices. It holds no card.

    Attributes:
        cart_generation: of the ordered cart; the etag of a foreign cart; empty if that has none.
    """

    order_id: str
    user_id: str
    email: str
    cart_generation: str
    address: Address
    lines: tuple[OrderLine, ...]
    shipping_cost: Money

    @property
    def purchase_id(self) -> str:
        """The id of what the order buys: the user's cart until an order's items leave it. Empty if that is unknown."""
        bought = f"{len(self.user_id)}:{self.user_id}{self.cart_generation}"
        digest = hashlib.sha256(bought.encode()).digest()[:8]
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() if self.cart_generation else ""

    @property
    def quantities(self) -> dict[str, int]:
        return {line.product_id: line.quantity for line in self.lines}

    @cached_property
    def total(self) -> Money:
        """The amount to charge: the sum of all lines and of shipping."""
        return total(self.shipping_cost.currency_code, [self.shipping_cost, *(line.cost for line in self.lines)])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order was refused, as its callers receive it: the same for every retry.

    Attributes:
        kind: the name of a class in chassis.errors.REFUSALS.
        violations: the violated fields of an InvalidArgument.
    """

    kind: str
    reason: str
    message: str
    violations: tuple[FieldViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of an order's state, and what is recorded with it. To CHARGING is the next attempt.

    Attributes:
        refused_as: for the next attempt: the state in which the refusal ends the order behind a new fence.
        step, detail: what the history calls it if an operator decided it, and who did so and why.
    """

    before: State
    after: State
    transaction_id: str = ""
    tracking_id: str = ""
    refusal: Refusal | None = None
    refused_as: State | None = None
    step: str = ""
    detail: str = ""


def order_id_of(scope: str) -> str:
    """Return the id of a scope's order, a UUID of version 8 from its SHA-256.

    A journal that has lost the order gives it the same id again, and with it the same keys at payment and shipping.
    """
    digest = bytearray(hashlib.sha256(f"order\0{scope}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # version 8, which uuid.UUID accepts from Python 3.14 on
    digest[8] = digest[8] & 0x3F | 0x80  # the variant of RFC 9562
    return str(uuid.UUID(bytes=bytes(digest)))


def charge_key(order_id: str, attempt: int) -> str:
    """Return the idempotency key of one attempt's charge. A fenced attempt is never charged, the next one may be."""
    return f"{order_id}:{attempt}"


def ship_key(order_id: str, attempt: int) -> str:
    """Return the idempotency key of one attempt's shipment: the order's id, or that of the charge for later attempts.

    An attempt whose charge was voided has a fenced shipment, so the next one needs another key. Orders of releases with
    random ids, of version 7, have one key for all attempts.
    """
    return order_id if attempt == 1 or uuid.UUID(order_id).version == _RANDOM_ID_VERSION else f"{order_id}:{attempt}"
