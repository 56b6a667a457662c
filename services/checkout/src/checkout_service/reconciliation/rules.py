"""Compares an order's records in checkout, payment, shipping and email, according to the tables EXPECTED and KINDS."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from chassis.values.money import Money
from checkout_service.domain import NEEDS_OPERATOR, OPEN, PLACED, RELEASED_CART, State, charge_key


class Kind(StrEnum):
    """How an order's records disagree."""

    CHARGED_TWICE = "CHARGED_TWICE"
    CHARGED_NOT_SHIPPED = "CHARGED_NOT_SHIPPED"
    SHIPPED_NOT_CHARGED = "SHIPPED_NOT_CHARGED"
    SHIPPED_TWICE = "SHIPPED_TWICE"
    NOT_CHARGED = "NOT_CHARGED"
    REFUSED_BUT_CHARGED = "REFUSED_BUT_CHARGED"
    REFUSED_BUT_SHIPPED = "REFUSED_BUT_SHIPPED"
    REFUSED_BUT_MAILED = "REFUSED_BUT_MAILED"
    AMOUNT_DIFFERS = "AMOUNT_DIFFERS"
    ATTEMPT_DIFFERS = "ATTEMPT_DIFFERS"
    CHARGE_DIFFERS = "CHARGE_DIFFERS"
    PARCEL_DIFFERS = "PARCEL_DIFFERS"
    NOT_MAILED = "NOT_MAILED"
    MAIL_DIFFERS = "MAIL_DIFFERS"
    NOT_SETTLED = "NOT_SETTLED"
    OPEN_TOO_LONG = "OPEN_TOO_LONG"
    UNKNOWN_ORDER = "UNKNOWN_ORDER"
    UNREADABLE = "UNREADABLE"


Expected: TypeAlias = Literal["one", "none", "any", "paired"]
"""How many records of an order a store (payment, shipping or email) should have.

`paired` is one if the partner record exists: a charge needs a shipment and vice versa; a shipment needs a confirmation.
"""

UNKNOWN, DISMISSED_PLACED = "UNKNOWN", "DISMISSED_PLACED"

EXPECTED: Mapping[str, tuple[Expected, Expected, Expected]] = {
    # order state or operator's decision: (expected charges, shipments, confirmations)
    **dict.fromkeys(PLACED, ("one", "one", "one")),
    **dict.fromkeys(OPEN, ("paired", "paired", "any")),
    **dict.fromkeys(RELEASED_CART, ("none", "none", "none")),
    State.NEEDS_REFUND: ("one", "none", "any"),
    State.NEEDS_REVIEW: ("one", "any", "any"),
    State.SETTLED: ("any", "any", "any"),
    "settled_refunded": ("none", "none", "any"),
    "settled_shipped": ("one", "any", "one"),
    "settled_dismissed": ("any", "any", "any"),
    DISMISSED_PLACED: ("one", "any", "any"),  # it may have been settled as shipped before
    UNKNOWN: ("paired", "paired", "paired"),
}


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The kinds of mismatch to report for a store. `alone` applies if the record and its partner are both missing."""

    missing: Kind
    alone: Kind | None
    unexpected: Kind
    twice: Kind
    differs: Kind


KINDS = (
    _Kinds(
        Kind.SHIPPED_NOT_CHARGED, Kind.NOT_CHARGED, Kind.REFUSED_BUT_CHARGED, Kind.CHARGED_TWICE, Kind.CHARGE_DIFFERS
    ),
    _Kinds(Kind.CHARGED_NOT_SHIPPED, None, Kind.REFUSED_BUT_SHIPPED, Kind.SHIPPED_TWICE, Kind.PARCEL_DIFFERS),
    _Kinds(Kind.NOT_MAILED, Kind.NOT_MAILED, Kind.REFUSED_BUT_MAILED, Kind.MAIL_DIFFERS, Kind.MAIL_DIFFERS),
)

MAIL_KINDS = frozenset({Kind.NOT_MAILED, Kind.REFUSED_BUT_MAILED, Kind.MAIL_DIFFERS})

Digests: TypeAlias = Mapping[str, bytes]
"""Maps the parts of a record, such as `address`, to digests. Parts that two records share must have equal digests."""


@dataclass(frozen=True, slots=True)
class RecordedOrder:
    """An order in checkout's journal. All times in this module are seconds since 1970.

    Attributes:
        settlement: an operator's latest decision in the order's history, such as settled_shipped; "" if none.
        in_progress: whether a worker may be about to change the order's records. If so, they can't be compared.
        recorded_at: when the order was created.
        is_readable: False if only some of the order's fields could be decoded.
    """

    order_id: str
    state: str
    attempt: int
    total: Money
    recorded_at: float
    changed_at: float
    settlement: str = ""
    in_progress: bool = False
    is_readable: bool = True
    digests: Digests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """A charge, shipment or confirmation of an order.

    Attributes:
        key: the idempotency key of a charge or shipment; for confirmations, the order id.
        label: identifies the record to operators, such as a tracking id.
        amount: the amount charged; None for shipments and confirmations.
        failed: whether this is a confirmation that will never be sent, as opposed to one still waiting for the relay.
    """

    key: str
    label: str
    recorded_at: float = 0.0
    amount: Money | None = None
    failed: bool = False
    is_readable: bool = True
    digests: Digests = field(default_factory=dict)

    @property
    def order_id(self) -> str:
        """The order id in the key of a charge or shipment, which is `order_id` or `order_id:attempt`."""
        return self.key.partition(":")[0] or self.key  # other callers' keys may begin with a colon


@dataclass(frozen=True, slots=True)
class OrderRecords:
    """All records of one order. `order` is None if the journal has no such order. Effects are oldest first."""

    order_id: str
    order: RecordedOrder | None
    charges: tuple[Effect, ...] = ()
    shipments: tuple[Effect, ...] = ()
    confirmations: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A disagreement between an order's records.

    `state` is the order's state in the journal, or "" if the journal doesn't have the order. `since` is the time of the
    record whose counterpart is missing or wrong.
    """

    kind: Kind
    order_id: str
    state: str
    since: float
    detail: str

    def is_due(self, due_before: float, now: float) -> bool:
        """Return whether a missing counterpart is overdue: the record is old, or dated in the future."""
        return self.since < due_before or self.since > now


CompleteSince: TypeAlias = Mapping[Kind, float]
"""Maps kinds of mismatch to how far back the store that lacks the record is complete, in seconds since 1970.

Older records may have been deleted. The time is infinite if the records could not be read. Charges are never deleted.
"""


def find_mismatches(
    records: OrderRecords, complete_since: CompleteSince, *, known: Collection[str] = ()
) -> Iterator[Mismatch]:
    """Yield the mismatches between an order's records, including those that are not due yet.

    Records older than `complete_since` are reported only if the kind of mismatch is already `known`, because their
    counterparts may have been deleted.
    """
    order = records.order
    if order is not None and order.in_progress:
        return
    # An open order that was lost and placed again may have an older charge, so date mismatches by its latest change.
    in_progress_since = order.changed_at if order and order.state in OPEN else 0.0
    for kind, found_at, detail in (*_counts(records), *_differences(records), *_of_order(records)):
        since = max(found_at, in_progress_since)
        is_found = kind in known or (kind is Kind.NOT_MAILED and records.confirmations)
        if is_found or complete_since.get(kind, 0.0) <= since:
            yield Mismatch(kind, records.order_id, order.state if order else "", since, detail)


_Found = tuple[Kind, float, str]


def _of_order(records: OrderRecords) -> Iterator[_Found]:
    order, effects = records.order, (*records.charges, *records.shipments)
    if order is None:
        first = min((effect.recorded_at for effect in effects), default=0.0)
        yield Kind.UNKNOWN_ORDER, first, ", ".join(sorted({effect.key for effect in effects}))
    elif not order.is_readable:
        yield Kind.UNREADABLE, order.changed_at, "the order"
    elif order.state in {*OPEN, State.SHIPPED, *NEEDS_OPERATOR}:
        yield Kind.OPEN_TOO_LONG, order.changed_at, ""
    elif order.state == State.SETTLED and order.settlement not in EXPECTED:
        yield Kind.NOT_SETTLED, order.changed_at, "no operator's decision in its history"


def _counts(records: OrderRecords) -> Iterator[_Found]:
    """Find missing, unexpected and duplicate records, according to the order's row in EXPECTED."""
    order, charges, shipments = records.order, records.charges, records.shipments
    stores, partners = (charges, shipments, records.confirmations), (shipments, charges, shipments)
    changed_at = order.changed_at if order else 0.0
    rule = UNKNOWN if order is None else order.settlement if order.settlement in EXPECTED else order.state
    if order and order.state in PLACED and order.settlement == "settled_dismissed":
        rule = DISMISSED_PLACED
    for kinds, expected, effects, others in zip(KINDS, EXPECTED[rule], stores, partners, strict=True):
        labels = ", ".join(effect.label for effect in effects or others)
        if not effects or effects[0].failed:
            kind = kinds.missing if others else kinds.alone
            if kind and (expected == "one" or (expected == "paired" and others)):
                yield kind, others[0].recorded_at if others else changed_at, labels
        elif expected == "none":
            yield kinds.unexpected, effects[0].recorded_at or changed_at, labels
        if len(effects) > 1:
            yield kinds.twice, effects[1].recorded_at, labels


def _differences(records: OrderRecords) -> Iterator[_Found]:
    """Find charges, shipments and confirmations whose content doesn't match the order."""
    order, charges, shipments = records.order, records.charges, records.shipments
    changed_at = order.changed_at if order else 0.0
    for kinds, effects in zip(KINDS, (charges, shipments, records.confirmations), strict=True):
        for effect in effects:
            at = effect.recorded_at or changed_at
            if not effect.is_readable:
                yield Kind.UNREADABLE, at, effect.label
            elif order and order.is_readable and (effects is not charges or not order.settlement):
                found = _difference(order, effect, is_only=len(effects) == 1)
                yield from ((kind or kinds.differs, at, f"{detail} {effect.label}") for kind, detail in found)


def _difference(order: RecordedOrder, effect: Effect, *, is_only: bool) -> Iterator[tuple[Kind | None, str]]:
    """Yield (kind, detail) pairs; no kind means `_Kinds.differs`. Compare ids only if the order has one such effect."""
    key = charge_key(order.order_id, order.attempt)
    if effect.amount not in {None, order.total}:
        yield Kind.AMOUNT_DIFFERS, f"{order.total} was to be charged, not"
    # The key of the first attempt's shipment, and of every shipment in older releases, is the order id.
    keys = {key} if effect.amount else {key, order.order_id}
    if is_only and order.state in PLACED and not order.settlement and effect.key not in keys:
        yield Kind.ATTEMPT_DIFFERS, f"the key is {effect.key} instead of {key} of"
        return
    ignored = set() if is_only else {"purchase", "request", "transaction", "tracking"}
    ignored |= {"address", "items"} if order.settlement else set()  # the operator has decided about the content
    both = effect.digests.keys() & order.digests.keys() - ignored
    if parts := ", ".join(sorted(part for part in both if effect.digests[part] != order.digests[part])):
        yield None, f"{parts} of"
