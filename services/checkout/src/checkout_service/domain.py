"""Orders: carts, prices, states, transitions, ids and idempotency keys."""

import base64
import hashlib
import re
import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from chassis.errors import FailedPrecondition, FieldViolation
from chassis.values.money import Money, total
from chassis.values.orders import Address, Item, OrderLine

_RANDOM_ID_VERSION = 7

# Matches text that could be a card number.
CARD_NUMBER = re.compile(r"\d(?:[\W_]*\d){7,}")


class CartEmpty(FailedPrecondition):
    """The cart has no items to order."""


class ProductWithdrawn(FailedPrecondition):
    """A product in the cart is no longer in the catalog."""


class QuoteRefused(FailedPrecondition):
    """Shipping does not deliver this cart to this address."""


class NothingToPay(FailedPrecondition):
    """The order's total is zero or less, so there is nothing to charge."""


class State(StrEnum):
    """The state of an order. CHARGING, VOIDING and SETTLING are open: a worker must still finish the order."""

    CHARGING = "CHARGING"
    SHIPPED = "SHIPPED"
    DONE = "DONE"
    DECLINED = "DECLINED"
    VOIDING = "VOIDING"
    VOIDED = "VOIDED"
    NEEDS_REFUND = "NEEDS_REFUND"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    ABANDONED = "ABANDONED"
    SETTLING = "SETTLING"
    """An operator has decided how the order ends, and a worker must carry out the decision."""
    SETTLED = "SETTLED"
    """An operator has closed the order. It won't change again, and it no longer holds its cart."""


OPEN = (State.CHARGING, State.VOIDING, State.SETTLING)
PLACED = frozenset({State.SHIPPED, State.DONE})
MAX_OPEN_MISMATCHES = 10_000
"""The largest number of mismatches that reconciliation follows up: more would not fit into a gRPC message."""
NEEDS_OPERATOR = frozenset({State.NEEDS_REFUND, State.NEEDS_REVIEW})
REFUSED = frozenset({State.DECLINED, State.VOIDED, State.SETTLED}) | NEEDS_OPERATOR

# In these states, no charge remains and the cart may be ordered again. In all other states except SETTLED, the order
# holds its cart: no other order for this cart can be recorded.
RELEASED_CART = frozenset({State.ABANDONED, State.DECLINED, State.VOIDED})

# The reasons recorded when an operator decides how an order ends.
SETTLED_REFUNDED, SETTLED_SHIPPED, SETTLED_DISMISSED = "SETTLED_REFUNDED", "SETTLED_SHIPPED", "SETTLED_DISMISSED"

# If the journal has lost an order, record it again only when it changes to one of these states. They imply that the
# current attempt was charged, so no later attempt can have been charged.
RESTORABLE = frozenset({State.SHIPPED, State.VOIDING, State.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True)
class Cart:
    """A user's cart. Other implementations of the cart service may omit the etag, and never send the last two fields.

    Attributes:
        etag: changes whenever the lines change.
        ordered_etag: if an order emptied the cart, that order's `cart_generation`; otherwise None.
        generation: changes when placing an order removes some items but leaves others. It doesn't change when the
            customer adds or changes items.
    """

    lines: tuple[Item, ...]
    etag: str | None
    ordered_etag: str | None = None
    generation: str | None = None


@dataclass(frozen=True)
class Order:
    """An order with fixed prices, all in one currency and rounded to that currency's minor unit.

    `cart_generation` is the cart's generation if known, else its etag, else "".

    When you add a field, also extend `peers.wire`, `journal.snapshots` (with a default for older rows), `placing.price`
    and, in `requests`, `OrderRequest`, `validate` and `fingerprints` (only if the field is set, so that retries of
    older requests still match); then email and storefront, which show orders.
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
        """The id under which payment captures only one charge; "" if the cart has neither a generation nor an etag."""
        bought = f"{len(self.user_id)}:{self.user_id}{self.cart_generation}"
        digest = hashlib.sha256(bought.encode()).digest()[:8]
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() if self.cart_generation else ""

    @property
    def quantities(self) -> dict[str, int]:
        return {line.product_id: line.quantity for line in self.lines}

    @cached_property
    def total(self) -> Money:
        """The amount to charge: the sum of all lines and shipping."""
        return total(self.shipping_cost.currency_code, [self.shipping_cost, *(line.cost for line in self.lines)])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order was refused. Retries with the same key get the same refusal, unless a field was malformed.

    `kind` names a class in chassis.errors.REFUSALS. `violations` lists the invalid fields of an InvalidArgument.
    """

    kind: str
    reason: str
    message: str
    violations: tuple[FieldViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """A change to an order's state, with the details to record.

    `refused_as` is the state in which a refused order will end, once its next attempt is fenced. If an operator decided
    on the change, `step` names the decision in the order's history, and `detail` says who decided and why. If the order
    was SHIPPED, such a decision also deletes its outbox items.
    """

    before: State
    after: State
    transaction_id: str = ""
    tracking_id: str = ""
    refusal: Refusal | None = None
    refused_as: State | None = None
    step: str = ""
    detail: str = ""

    @property
    def begins_attempt(self) -> bool:
        """Whether a worker starts the order's next attempt: it changes the state to CHARGING or not at all."""
        return not self.step and self.after in (State.CHARGING, self.before)


def order_id_of(scope: str) -> str:
    """Return the order id for a scope: a version 8 UUID derived from the scope's SHA-256 hash.

    So even if the journal loses an order, a retry of the request uses the same order id and idempotency keys.
    """
    digest = bytearray(hashlib.sha256(f"order\0{scope}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # set version 8 by hand: uuid.UUID supports it only since Python 3.14
    digest[8] = digest[8] & 0x3F | 0x80  # set the variant that RFC 9562 defines
    return str(uuid.UUID(bytes=bytes(digest)))


def charge_key(order_id: str, attempt: int) -> str:
    """Return the idempotency key for an attempt's charge. Attempts have separate keys, so a fence stops only one."""
    return f"{order_id}:{attempt}"


def ship_key(order_id: str, attempt: int) -> str:
    """Return the idempotency key for an attempt's shipment: the order id for attempt 1, the charge key for later ones.

    A new attempt needs a new key, because before a charge is voided, its shipment's key is fenced. Old releases used
    random order ids (UUID version 7) and one shipment key for all of an order's attempts.
    """
    if attempt == 1 or uuid.UUID(order_id).version == _RANDOM_ID_VERSION:
        return order_id
    return charge_key(order_id, attempt)
