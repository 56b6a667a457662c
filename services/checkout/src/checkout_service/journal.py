"""What the journal keeps of orders, and the Protocol of what keeps it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import Unavailable
from chassis.money import Money
from checkout_service.domain import Order, Refusal, State
from checkout_service.saga import Update

LEASE_SECONDS = 15.0
"""How long an order is left to the worker that serves its caller, unless set; recovery has twice as long."""

OUTBOX_LEASE_SECONDS = 5
"""How long the worker that placed an order has for its e-mail and its cart before others try."""

REPLAY_SECONDS = 3600
"""How long an order is found by its fingerprint alone."""

STUCK_SECONDS = 60
"""An order without a change of state for so long needs somebody's eyes, unless it is finished."""

EMAIL = "email"
EMPTY_CART = "empty_cart"


class JournalUnavailable(Unavailable):
    """The journal can't be read or written; nothing was begun that is not in it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_seconds=1.0)


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order to be written down before anything has an effect.

    Attributes:
        scope: stands for method, user and idempotency key; a scope has one order.
        fingerprint: of the request.
        snapshot: the order with its prices, encoded.
        traceparent: of the trace that it is placed in; empty when there is none.
    """

    scope: str
    fingerprint: str
    order: Order
    snapshot: bytes
    traceparent: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An order as the journal has it.

    Attributes:
        leased: some worker has it and has time left.
        failures: takeovers in vain since the last change of state.
        reason: of the last failure or refusal; empty when there was none.
        answer: the response's bytes, once it is shipped.
        stuck: it needs somebody's eyes.
        created_at, updated_at: seconds since 1970; updated_at is that of the last change of state.
    """

    order_id: str
    fingerprint: str
    user_id: str
    email: str
    cart_etag: str
    total: Money
    state: State
    attempt: int
    epoch: int
    leased: bool
    failures: int
    reason: str
    refusal: Refusal | None
    tracking_id: str
    traceparent: str
    created_at: float
    updated_at: float
    stuck: bool
    snapshot: bytes
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Event:
    """A step in an order's history. `at` is in seconds since 1970."""

    at: float
    step: str
    state: State
    attempt: int
    epoch: int
    detail: str


@dataclass(frozen=True, slots=True)
class Sent:
    """An outbox item that is finished. `step` is for the history: email_sent, email_refused, cart_emptied ..."""

    order_id: str
    kind: str
    step: str


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """Something to send for an order; `failures` counts the tries in vain."""

    kind: str
    failures: int
    order: Entry


@dataclass(frozen=True, slots=True)
class Statistics:
    """What operators watch. Ages are in seconds; zero when there is nothing."""

    orders: dict[State, int]
    oldest_open_seconds: float
    outbox_backlog: int


class Journal(Protocol):
    """Where orders are kept. What a method has written is on disk when it returns; all raise JournalUnavailable."""

    async def find(self, scope: str) -> Entry | None:
        """Look an order up by its scope."""

    async def find_recent(self, fingerprint: str) -> Entry | None:
        """Look the newest order of the last hour up that was placed, or may be, by the same request."""

    async def read(self, order_id: str) -> Entry | None:
        """Look an order up by its id."""

    async def insert(self, new: NewOrder) -> Entry | None:
        """Write a new order down as CHARGING, leased. None, or the other order that has its scope."""

    async def take_over(self, seen: Entry) -> Entry | None:
        """Take an order whose lease ran out, or reopen an abandoned one with a new attempt; None: it changed."""

    async def claim_expired(self, limit: int) -> list[Entry]:
        """Take up to `limit` open orders whose lease ran out, counting a failure until they change state."""

    async def update(self, order_id: str, epoch: int, change: Update, answer: bytes | None) -> bool:
        """Change the order's state if its state and epoch are as expected; with SHIPPED its outbox is filled."""

    async def release(self, order_id: str, epoch: int, *, delay_seconds: float, reason: str) -> None:
        """End the lease after a delay, unless another worker has the order."""

    async def release_own(self) -> None:
        """End the leases that an earlier life of this worker left."""

    async def claim_outbox(self, limit: int) -> list[OutboxItem]:
        """Take up to `limit` outbox items that are due."""

    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        """Make an item due later."""

    async def settle(self, sent: Collection[Sent]) -> list[str]:
        """Drop finished outbox items; returns the ids of the orders that are DONE by it."""

    async def statistics(self) -> Statistics:
        """Count what is not finished."""

    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        """List orders, newest first; stuck ones oldest first."""

    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        """Tell the kinds that are left in each order's outbox."""

    async def history(self, order_id: str) -> list[Event]:
        """Tell an order's history, oldest first."""

    async def check(self) -> None:
        """Return if the journal answers."""
