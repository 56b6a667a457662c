"""The records that the journal stores, and the interfaces to checkout's peers."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from chassis.errors import Unavailable
from chassis.values.money import Money
from chassis.values.orders import Address, Card, Item
from chassis.values.paging import Position
from checkout_service.commands import ChargeOutcome, ShipOutcome, VoidOutcome
from checkout_service.domain import PLACED, Cart, Order, Refusal, State, Transition

# By default, the worker that serves the caller leases an order for this long. Recovery's leases are twice as long.
LEASE_SECONDS = 15.0

EMAIL = "email"
EMPTY_CART = "empty_cart"
# The remaining work for a placed order: send the confirmation, and remove the ordered items from the cart.
OUTBOX_KINDS = (EMAIL, EMPTY_CART)

# The longest delay before a failed order or outbox item is tried again.
MAX_RETRY_DELAY_SECONDS = 300.0


class JournalUnavailable(Unavailable):
    """The journal cannot be read or written. Nothing was charged or shipped for an order that was not recorded."""

    def __init__(self, message: str = "the journal does not answer") -> None:
        super().__init__(message, retry_after_seconds=1.0)


def new_owner() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Entry:
    """An order as the journal stores it. The defaults describe a new order, held by its creator and not yet recorded.

    The attempt, epoch and owner are the worker's claim: the journal rejects updates with an outdated claim.

    Attributes:
        scope: a hash of the method, the user and the idempotency key or cart etag; each scope has one order.
        fingerprint: identifies the request that started the order.
        traceparent: the context of the span in which the order was started; empty if that span was not sampled.
        epoch: increases with each new worker or attempt. A journal that has lost commits may reuse an epoch.
        owner: a random id that is never reused.
        leased: whether a worker currently has a lease on the order.
        failures: the number of failed recovery attempts since the state last changed.
        reason: why the order was refused or last failed; empty if neither applies.
        refused_as: the state in which a refused order that is still CHARGING will end, once its attempt is fenced.
        stuck: whether the order needs operator attention.
        unreadable: the stored text if it can't be decoded, in which case `order` is incomplete; otherwise empty.
        recorded_total: the total stored in separate columns, which must equal the order's total.
        created_at, updated_at: seconds since 1970; updated_at is when the state last changed.
    """

    scope: str
    fingerprint: str
    order: Order
    traceparent: str = ""
    state: State = State.CHARGING
    attempt: int = 1
    epoch: int = 1
    owner: str = field(default_factory=new_owner)
    leased: bool = True
    failures: int = 0
    reason: str = ""
    refusal: Refusal | None = None
    refused_as: State | None = None
    transaction_id: str = field(default="", compare=False)
    tracking_id: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    stuck: bool = False
    unreadable: str = ""
    recorded_total: Money | None = field(default=None, compare=False)

    @property
    def order_id(self) -> str:
        return self.order.order_id

    @property
    def position(self) -> Position:
        return Position(self.created_at, self.order_id)

    @property
    def is_new(self) -> bool:
        """Whether this worker created the entry, as opposed to reading it from the journal."""
        return self.created_at == 0.0

    @property
    def is_placed(self) -> bool:
        """Whether the order was charged and shipped, so that its request can be answered."""
        return self.state in PLACED

    def after(self, transition: Transition) -> "Entry":
        """Return the order in its new state, under its new claim. An operator's decision ends the worker's claim."""
        is_decision = bool(transition.step)  # a new epoch lets the history record the same decision twice
        return replace(
            self,
            state=transition.after,
            tracking_id=transition.tracking_id,
            attempt=self.attempt + transition.begins_attempt,
            epoch=self.epoch + (transition.begins_attempt or is_decision),
            owner=new_owner() if is_decision else self.owner,
        )


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """An outbox item. `failures` is the journal's count, which includes the try of a worker that has claimed it."""

    kind: str
    entry: Entry
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much unfinished work the journal holds.

    Attributes:
        oldest_open_seconds: the longest that any open order has been in its current state.
        outbox_backlog: the number of items still to be sent, not counting dead letters.
        oldest_item_seconds: the time since the order with the oldest unsent item was shipped.
        future_orders: the number of orders dated in the future, counted up to MAX_COUNTED.
        waiting_seconds: the longest that any order has waited for an operator, by state.
    """

    orders: dict[State, int]
    oldest_open_seconds: float
    outbox_backlog: int
    dead_letters: dict[str, int] = field(default_factory=dict)
    future_orders: int = 0
    oldest_item_seconds: float = 0.0
    waiting_seconds: dict[State, float] = field(default_factory=dict)


class Quotes(Protocol):
    """Reads a new order's cart and prices. All methods raise Unavailable if a peer fails."""

    async def cart(self, user_id: str) -> Cart: ...

    async def unit_prices(self, product_ids: Sequence[str]) -> list[Money]:
        """Return the prices, in the order of `product_ids`. Raise ProductWithdrawn if a product is not for sale."""

    async def shipping(self, address: Address, lines: Sequence[Item]) -> Money:
        """Return the shipping cost. Raise QuoteRefused if shipping refuses the address or the lines."""

    async def convert(self, amounts: Sequence[Money], to_code: str) -> list[Money]:
        """Convert amounts without rounding. Raise InvalidArgument for an unknown currency, OutOfRange on overflow."""


class Payment(Protocol):
    """Charges cards, once per key."""

    async def charge(self, key: str, order: Order, card: Card, *, fingerprint: str, retry: bool) -> ChargeOutcome:
        """Charge the order's total to the card, for the request with this fingerprint.

        If this is a retry and the peer may ignore keys, return Unsupported instead of risking a second charge.
        """

    async def resolve(self, key: str, order: Order, *, fingerprint: str) -> ChargeOutcome:
        """Return the outcome of the key's charge. If payment has no record of the key, fence it.

        The outcome is KeyReused if the charge was for a different amount, request or purchase.
        """

    async def void(self, key: str) -> VoidOutcome:
        """Void the key's charge."""


class Shipping(Protocol):
    """Ships orders, once per key."""

    async def ship(self, key: str, order: Order, charged_at: float, *, retry: bool) -> ShipOutcome:
        """Ship the ordered lines. See `Charged` for `charged_at`, and `Payment.charge` for `retry`."""

    async def resolve(self, key: str, charged_at: float) -> ShipOutcome:
        """Return the outcome of the key's shipment. If shipping has no record of the key, fence it."""


Sender: TypeAlias = Callable[[Entry], "asyncio.Future[None]"]
"""Starts sending a placed order's outbox item. The returned future yields None or raises a DomainError.

Sending an item again has no further effect: each order's email is sent only once, and its items are removed only once.
"""
