"""Compares an order's records in the journal, payment, shipping and email."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

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
    AMOUNT_DIFFERS = "AMOUNT_DIFFERS"
    ATTEMPT_DIFFERS = "ATTEMPT_DIFFERS"
    PARCEL_DIFFERS = "PARCEL_DIFFERS"
    NOT_MAILED = "NOT_MAILED"
    MAIL_DIFFERS = "MAIL_DIFFERS"
    OPEN_TOO_LONG = "OPEN_TOO_LONG"
    UNKNOWN_ORDER = "UNKNOWN_ORDER"


Digests: TypeAlias = Mapping[str, bytes]
"""Maps the parts of a record, such as `address`, to digests, which are compared instead of the content."""


@dataclass(frozen=True, slots=True)
class RecordedOrder:
    """An order in checkout's journal. All times in this module are seconds since 1970.

    `is_settled`: whether an operator has settled the order, so that its charges and shipments are not compared.
    """

    order_id: str
    state: str
    attempt: int
    total: Money
    created_at: float
    changed_at: float
    is_settled: bool = False
    digests: Digests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedCharge:
    key: str
    amount: Money
    recorded_at: float


@dataclass(frozen=True, slots=True)
class RecordedShipment:
    key: str
    tracking_id: str
    recorded_at: float
    digests: Digests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedConfirmation:
    """A confirmation that the email service has accepted.

    `failed`: whether the mail will never be sent. A mail that is still waiting for the relay is not a mismatch.
    """

    failed: bool
    detail: str
    digests: Digests = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrderRecords:
    """All records of one order.

    Attributes:
        order: None if the journal has no order with this id.
        charges, shipments: the order's charges and shipments, oldest first.
        effects_are_read: False if the order is too old for its charges and shipments to have been read.
    """

    order_id: str
    order: RecordedOrder | None
    charges: tuple[RecordedCharge, ...] = ()
    shipments: tuple[RecordedShipment, ...] = ()
    confirmation: RecordedConfirmation | None = None
    effects_are_read: bool = True


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A disagreement between an order's records.

    `state`: the order's state in the journal; empty if the journal does not have the order. `since`: the time of the
    record whose counterpart is missing or wrong.
    """

    kind: Kind
    order_id: str
    state: str
    since: float
    detail: str


@dataclass(frozen=True, slots=True)
class CompleteSince:
    """The times since which no orders, shipments or confirmations were deleted due to age. Charges are never deleted.

    `confirmations` is infinite if the email service keeps no confirmation records.
    """

    orders: float = 0.0
    shipments: float = 0.0
    confirmations: float = 0.0


def find_mismatches(records: OrderRecords, settled_before: float, complete_since: CompleteSince) -> Iterator[Mismatch]:
    """Yield the mismatches between an order's records.

    Records newer than `settled_before` need no counterpart yet. The counterparts of records older than `complete_since`
    may have been deleted because of their age.
    """
    counterparts_since = {
        Kind.UNKNOWN_ORDER: complete_since.orders,
        Kind.CHARGED_NOT_SHIPPED: complete_since.shipments,
        Kind.NOT_MAILED: complete_since.confirmations if records.confirmation is None else 0.0,
    }
    order, found = records.order, list[_Found]()
    if records.effects_are_read and not (order and order.is_settled):
        found += [*_doubled(records), *_contradictions(records), *_differences(records)]
    if records.effects_are_read:
        found += _unconfirmed(records)
    if order is not None and order.state in {*OPEN, State.SHIPPED, *NEEDS_OPERATOR}:
        found.append((Kind.OPEN_TOO_LONG, order.changed_at, ""))
    # If the journal lost an order in progress, the order's charge or shipment may date from before the loss.
    in_progress_since = order.changed_at if order and order.state in OPEN else 0.0
    for kind, found_at, detail in found:
        since = max(found_at, in_progress_since)
        if counterparts_since.get(kind, 0.0) <= since < settled_before:
            yield Mismatch(kind, records.order_id, order.state if order else "", since, detail)


_Found = tuple[Kind, float, str]


def _doubled(records: OrderRecords) -> Iterator[_Found]:
    charges, shipments = records.charges, records.shipments
    if len(charges) > 1:
        detail = ", ".join(f"{charge.amount} under {charge.key}" for charge in charges)
        yield Kind.CHARGED_TWICE, charges[1].recorded_at, detail
    if len(shipments) > 1:
        yield Kind.SHIPPED_TWICE, shipments[1].recorded_at, ", ".join(shipment.tracking_id for shipment in shipments)


def _contradictions(records: OrderRecords) -> Iterator[_Found]:
    """Find contradictions between the order's state and whether it was charged and shipped."""
    order, charges, shipments = records.order, records.charges, records.shipments
    state = order.state if order else ""
    if order is None:
        effects: list[RecordedCharge | RecordedShipment] = [*charges, *shipments]
        first = min(effects, key=lambda effect: effect.recorded_at)
        yield Kind.UNKNOWN_ORDER, first.recorded_at, ", ".join(sorted({effect.key for effect in effects}))
    elif not charges and not shipments and state in PLACED | NEEDS_OPERATOR:
        yield Kind.NOT_CHARGED, order.changed_at, ""
    is_refused, is_left = state in RELEASED_CART, state in NEEDS_OPERATOR
    if charges and (is_refused or not (shipments or is_left)):
        kind = Kind.REFUSED_BUT_CHARGED if is_refused else Kind.CHARGED_NOT_SHIPPED
        yield kind, charges[0].recorded_at, f"charged {charges[0].amount}"
    if shipments and (is_refused or state == State.NEEDS_REFUND or not charges):
        kind = Kind.REFUSED_BUT_SHIPPED if is_refused or charges else Kind.SHIPPED_NOT_CHARGED
        yield kind, shipments[0].recorded_at, f"shipped as {shipments[0].tracking_id}"


def _differences(records: OrderRecords) -> Iterator[_Found]:
    """Find differences between the order's content and what was charged and shipped."""
    if (order := records.order) is None:
        return
    for charge in records.charges:
        if charge.amount != order.total:
            yield Kind.AMOUNT_DIFFERS, charge.recorded_at, f"charged {charge.amount} instead of {order.total}"
        is_only_charge = order.state in PLACED and len(records.charges) == 1
        if is_only_charge and charge.key != charge_key(order.order_id, order.attempt):
            yield Kind.ATTEMPT_DIFFERS, charge.recorded_at, f"charged under {charge.key}"
    for shipment in records.shipments:
        if parts := _differing(order.digests, shipment.digests):
            yield Kind.PARCEL_DIFFERS, shipment.recorded_at, f"{parts} of {shipment.tracking_id}"


def _unconfirmed(records: OrderRecords) -> Iterator[_Found]:
    order, confirmation, shipments = records.order, records.confirmation, records.shipments
    since = shipments[0].recorded_at if shipments else order.changed_at if order else 0.0
    is_placed = order.state in PLACED if order else bool(shipments)
    if is_placed and (confirmation is None or confirmation.failed):
        yield Kind.NOT_MAILED, since, confirmation.detail if confirmation else "the email service has no confirmation"
    # An order that needs an operator may have been confirmed with a tracking id that the journal does not have.
    is_clear = order is not None and order.state not in {*NEEDS_OPERATOR, State.SETTLED}
    if order and confirmation and is_clear and (parts := _differing(order.digests, confirmation.digests)):
        yield Kind.MAIL_DIFFERS, since, parts


def _differing(expected: Digests, found: Digests) -> str:
    return ", ".join(part for part, digest in found.items() if digest != expected.get(part, digest))
