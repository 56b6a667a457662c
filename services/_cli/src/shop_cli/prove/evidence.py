"""What is known about each order and cart after a run: the customer's view and the ledgers' entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from chassis.money import Money
from shop.order_pb2 import OrderResult
from shop_cli.prove.customer_plan import Customer, Intent


class ClientOutcome(Enum):
    """The result of an order as its customer saw it."""

    PLACED = auto()
    REFUSED = auto()
    """A definite refusal."""
    CART_EMPTIED = auto()
    """A retry without a key found the cart empty: an earlier try had placed the order."""
    UNKNOWN = auto()
    """No definite response before the customer gave up or the time limit."""
    NOT_SUBMITTED = auto()
    """No order was placed because the cart could not be filled."""


@dataclass(frozen=True, slots=True)
class OrderResponse:
    """What a customer got back for one order, over all tries.

    Attributes:
        order: from the first OK response.
        reason: of the refusal, or of the last failure.
        contradictions: responses to the same request that do not agree with the first one, in words.
    """

    outcome: ClientOutcome
    order: OrderResult | None = None
    reason: str = ""
    tries: int = 0
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipment in shipping's manifest; items are quantities by product id."""

    tracking_id: str
    items: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A confirmation that was sent.

    Attributes:
        order_id: from the Message-ID.
        text: without line breaks.
    """

    order_id: str
    recipient: str
    text: str


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """An order in checkout's own journal; used for I5 and I8 only."""

    state: str
    total: Money


@dataclass(frozen=True, slots=True)
class OrderEvidence:
    """All evidence about one order.

    Attributes:
        charges: captured ones, matched by the card; a voided charge does not count.
        shipments: with distinct tracking ids, matched by the street.
        confirmations: matched by the recipient.
        journal_record: None if checkout has no journal or no record of the order.
        repeated: the response to the same request with the same key after the run; None if it was not sent.
    """

    intent: Intent
    response: OrderResponse
    charges: tuple[Money, ...] = ()
    shipments: tuple[Shipment, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    journal_record: JournalRecord | None = None
    repeated: OrderResponse | None = None


@dataclass(frozen=True, slots=True)
class CartEvidence:
    """A customer's cart after the run, as quantities by product id.

    Attributes:
        added: before orders were placed.
        added_late: while an order was being placed.
        contents: None if the cart could not be read.
    """

    customer: Customer
    added: Mapping[str, int]
    added_late: Mapping[str, int]
    contents: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about all orders and carts of a run.

    Attributes:
        quiet_seconds: from the end of the last fault and try until checkout had no unfinished order; None if some
            were left after the time limit.
        unmatched_entries: ledger entries that belong to no order, in words.
    """

    orders: tuple[OrderEvidence, ...]
    carts: tuple[CartEvidence, ...] = ()
    quiet_seconds: float | None = 0.0
    unmatched_entries: tuple[str, ...] = field(default=())
