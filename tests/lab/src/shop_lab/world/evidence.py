"""What is known about each order and cart after a run: the customer's view and the ledgers' entries."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from chassis.values.money import Money
from shop.order_pb2 import OrderResult
from shop_lab.world.customer_plan import Customer, Intent

NEEDS_REFUND, NEEDS_REVIEW = "NEEDS_REFUND", "NEEDS_REVIEW"
FLAGGED = frozenset({NEEDS_REFUND, NEEDS_REVIEW})
"""States in which an operator settles the order: one to be refunded, and one that may have been shipped."""
SETTLED = frozenset({"SHIPPED", "DONE"})
CART_EMPTY = "CART_EMPTY"
BOUGHT_BY_ANOTHER = frozenset({CART_EMPTY, "CART_ORDERED"})
"""Reasons of refusals while another order of the customer has bought what was in the cart, or holds it."""


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


INDEFINITE = frozenset({ClientOutcome.UNKNOWN, ClientOutcome.NOT_SUBMITTED})


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
    """An order in checkout's own journal."""

    order_id: str
    state: str
    total: Money
    tracking_id: str = ""
    reason: str = ""

    @property
    def is_flagged(self) -> bool:
        """Whether operators see that they must settle the order."""
        return self.state in FLAGGED


@dataclass(frozen=True, slots=True)
class OrderEvidence:
    """All evidence about one order.

    Attributes:
        charges: captured ones, matched by the card; a voided charge does not count.
        shipments: with distinct tracking ids, matched by the street.
        confirmations: matched by the recipient.
        journal_record: matched by the recipient; None if checkout has no journal or no record of the order.
        further_records: of the other orders that were not refused, if the customer's retries may have placed several.
        repeated: the response to the same request with the same key after the run; None if it was not sent.
        justified_flags: the states of the journal in which the order may be left to operators, because a peer has
            refused what would have settled it. The peers' records say that, not the journal.
        is_doubled: whether the network delivered one of the customer's requests twice and returned only one response.
    """

    intent: Intent
    response: OrderResponse
    charges: tuple[Money, ...] = ()
    shipments: tuple[Shipment, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    journal_record: JournalRecord | None = None
    repeated: OrderResponse | None = None
    justified_flags: frozenset[str] = frozenset()
    further_records: tuple[JournalRecord, ...] = ()
    is_doubled: bool = False

    @property
    def has_unanswered_request(self) -> bool:
        """Whether a request that the response does not answer may have ordered what the cart contained by then."""
        return self.is_doubled or (self.intent.may_order_again and self.response.tries > 1)

    @property
    def records(self) -> tuple[JournalRecord, ...]:
        """All records of the order in the journal that count."""
        return (*((self.journal_record,) if self.journal_record else ()), *self.further_records)

    @property
    def bought(self) -> tuple[Shipment, ...]:
        """The shipments whose items leave the cart: not those of an order that is left to operators."""
        if not self.is_flagged:
            return self.shipments
        placed = {record.tracking_id for record in self.records if record.state in SETTLED}
        return tuple(shipment for shipment in self.shipments if shipment.tracking_id in placed)

    @property
    def name(self) -> str:
        return f"order {self.intent.number}"

    @property
    def is_flagged(self) -> bool:
        """Whether operators see that they must settle the order."""
        return any(record.is_flagged for record in self.records)


@dataclass(frozen=True, slots=True)
class CartEvidence:
    """A customer's cart after the run, as quantities by product id.

    `added` is by all devices; `contents` is None if the cart could not be read.
    """

    customer: Customer
    added: Mapping[str, int]
    contents: Mapping[str, int] | None


@dataclass(frozen=True)
class Evidence:
    """The evidence about all orders and carts of a run.

    Attributes:
        quiet_seconds: from the end of the last fault and try until checkout had no unfinished order; None if some
            were left after the time limit.
        unmatched_entries: ledger entries that belong to no order, in words.
        contradictions: histories of a cart or key that no sequence of the same calls explains, in words.
        unexpected_errors: of the services, as their logs have them.
        has_journal: whether the checkout under test has a journal.
        journal_loses_commits: the journal may have lost what it had acknowledged, by asynchronous failovers.
        product_names: by id; a confirmation shows the name of a product, or its id.
    """

    orders: tuple[OrderEvidence, ...]
    carts: tuple[CartEvidence, ...] = ()
    quiet_seconds: float | None = 0.0
    unmatched_entries: tuple[str, ...] = field(default=())
    contradictions: tuple[str, ...] = ()
    unexpected_errors: tuple[str, ...] = ()
    has_journal: bool = True
    journal_loses_commits: bool = False
    product_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def orders_of(self) -> Mapping[str, list[OrderEvidence]]:
        """The orders by user id."""
        orders: defaultdict[str, list[OrderEvidence]] = defaultdict(list)
        for order in self.orders:
            orders[order.intent.user_id].append(order)
        return orders

    def excuses(self, order: OrderEvidence) -> bool:
        """Return whether an order may be incomplete, as the journal has lost it or one that an earlier try began."""
        is_lost = order.journal_record is None and bool(order.charges or order.shipments)
        return self.journal_loses_commits and (is_lost or order.is_flagged or order.intent.may_order_again)

    def most_effects_of(self, order: OrderEvidence) -> float:
        """Return how often an order may be charged and shipped."""
        if not order.intent.may_order_again:
            return 1
        return math.inf if self.journal_loses_commits else 1 + len(order.further_records)
