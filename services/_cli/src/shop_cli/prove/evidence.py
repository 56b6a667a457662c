"""What is known of an order after a run: what its customer was told, and what the ledgers hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from chassis.money import Money
from shop.order_pb2 import OrderResult
from shop_cli.prove.plan import Customer, Intent


class Told(Enum):
    """What a customer was told in the end."""

    PLACED = auto()
    REFUSED = auto()
    """A definite no."""
    CART_GONE = auto()
    """A later try without a key found the cart empty: an earlier one had placed the order."""
    NOTHING = auto()
    """No answer that says what became of it, before the customer walked away or the time was up."""
    NOT_ASKED = auto()
    """The order was never asked for: its customer's cart could not be filled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a customer experienced with one order.

    Attributes:
        order: as the first OK reply had it.
        reason: of a refusal, or of the last failure.
        contradictions: replies to the same request that said something else.
    """

    told: Told
    order: OrderResult | None = None
    reason: str = ""
    tries: int = 0
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shipment:
    """A parcel in the carrier's manifest; quantities by product."""

    tracking_id: str
    items: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Mail:
    """A confirmation that was sent: its order's id from the Message-ID, and its text without line breaks."""

    order_id: str
    recipient: str
    text: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """What checkout's own journal says of an order; used for nothing but I5 and I8."""

    state: str
    total: Money


@dataclass(frozen=True, slots=True)
class Story:
    """One order, from all sides.

    Attributes:
        charges: captured, by the card; a voided charge is none.
        shipments: with distinct tracking ids, by the street.
        mails: by the recipient.
        recorded: None when checkout keeps no journal or does not know the order.
        replayed: the answer to one more request with the same key, after the run; None when it was not asked for.
    """

    intent: Intent
    answer: Answer
    charges: tuple[Money, ...] = ()
    shipments: tuple[Shipment, ...] = ()
    mails: tuple[Mail, ...] = ()
    recorded: Recorded | None = None
    replayed: Answer | None = None


@dataclass(frozen=True, slots=True)
class CartStory:
    """One customer's cart after the run; quantities by product. None: the cart could not be read."""

    customer: Customer
    added: Mapping[str, int]
    late: Mapping[str, int]
    left: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All orders and carts of a run.

    Attributes:
        quiet_seconds: from the end of the last fault and the last try until nothing was left to do; None when something
            was left after the time allowed.
    """

    stories: tuple[Story, ...]
    carts: tuple[CartStory, ...] = ()
    quiet_seconds: float | None = 0.0
    strangers: tuple[str, ...] = field(default=())
    """Entries of the ledgers that belong to no order."""
