"""What must agree between the records of one order."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from chassis.values.money import Money


class Kind(StrEnum):
    """How the records of an order disagree."""

    CHARGED_TWICE = "CHARGED_TWICE"
    CHARGED_NOT_SHIPPED = "CHARGED_NOT_SHIPPED"
    SHIPPED_NOT_CHARGED = "SHIPPED_NOT_CHARGED"
    SHIPPED_TWICE = "SHIPPED_TWICE"
    AMOUNT_DIFFERS = "AMOUNT_DIFFERS"
    NOT_MAILED = "NOT_MAILED"
    OPEN_TOO_LONG = "OPEN_TOO_LONG"
    UNKNOWN_ORDER = "UNKNOWN_ORDER"


@dataclass(frozen=True, slots=True)
class Order:
    """An order in checkout's journal. Times, here and below, are seconds since 1970.

    Attributes:
        is_open: it is not finished, or an operator must settle it.
        changed_at: the time of its last change of state.
    """

    order_id: str
    state: str
    is_open: bool
    total: Money
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class Charge:
    """A captured charge in payment's ledger."""

    key: str
    amount: Money
    recorded_at: float


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipment in shipping's manifest."""

    key: str
    tracking_id: str
    recorded_at: float


@dataclass(frozen=True, slots=True)
class Message:
    """A confirmation that the email service has accepted.

    `failed`: it will not be sent. One that waits for the relay is no mismatch: email has a gauge of its own for it.
    """

    failed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class OrderRecords:
    """All records of one order.

    Attributes:
        order: None if the journal has none with this id.
        charges, shipments: in the order in which they were recorded.
        message: None if there is none.
    """

    order_id: str
    order: Order | None
    charges: tuple[Charge, ...] = ()
    shipments: tuple[Shipment, ...] = ()
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A disagreement between the records of an order.

    Attributes:
        state: of the order in the journal; empty if it is not there.
        since: the time of the record that has no counterpart.
    """

    kind: Kind
    order_id: str
    state: str
    since: float
    detail: str


@dataclass(frozen=True, slots=True)
class CompleteSince:
    """Times from which on no order, shipment or message was deleted because of its age. Charges are never deleted."""

    orders: float = 0.0
    shipments: float = 0.0
    messages: float = 0.0


def find_mismatches(
    records: OrderRecords, settled_before: float, messages_are_read: bool, complete_since: CompleteSince
) -> Iterator[Mismatch]:
    """Yield what disagrees.

    Args:
        records: of one order.
        settled_before: a missing counterpart is a mismatch only of records from before this time.
        messages_are_read: whether a missing message is one that does not exist.
        complete_since: the counterpart of an older record may have been deleted.
    """
    counterparts_since = {
        Kind.UNKNOWN_ORDER: complete_since.orders,
        Kind.CHARGED_NOT_SHIPPED: complete_since.shipments,
        Kind.NOT_MAILED: complete_since.messages if records.message is None else 0.0,
    }
    found = [*_doubled(records), *_missing(records)]
    if messages_are_read:
        found += _unconfirmed(records)
    if records.order is not None and records.order.is_open:
        found.append((Kind.OPEN_TOO_LONG, records.order.changed_at, ""))
    state = records.order.state if records.order else ""
    for kind, since, detail in found:
        if counterparts_since.get(kind, 0.0) <= since < settled_before:
            yield Mismatch(kind, records.order_id, state, since, detail)


_Found = tuple[Kind, float, str]


def _doubled(records: OrderRecords) -> Iterator[_Found]:
    charges, shipments, order = records.charges, records.shipments, records.order
    if len(charges) > 1:
        detail = ", ".join(f"{charge.amount} under {charge.key}" for charge in charges)
        yield Kind.CHARGED_TWICE, charges[1].recorded_at, detail
    if len(shipments) > 1:
        yield Kind.SHIPPED_TWICE, shipments[1].recorded_at, ", ".join(shipment.tracking_id for shipment in shipments)
    for charge in charges:
        if order is not None and charge.amount != order.total:
            yield Kind.AMOUNT_DIFFERS, charge.recorded_at, f"charged {charge.amount} instead of {order.total}"


def _missing(records: OrderRecords) -> Iterator[_Found]:
    charges, shipments = records.charges, records.shipments
    if records.order is None:
        effects: list[Charge | Shipment] = [*charges, *shipments]
        first = min(effects, key=lambda effect: effect.recorded_at)
        yield Kind.UNKNOWN_ORDER, first.recorded_at, ", ".join(sorted({effect.key for effect in effects}))
    if charges and not shipments:
        yield Kind.CHARGED_NOT_SHIPPED, charges[0].recorded_at, f"charged {charges[0].amount}"
    if shipments and not charges:
        yield Kind.SHIPPED_NOT_CHARGED, shipments[0].recorded_at, f"shipped as {shipments[0].tracking_id}"


def _unconfirmed(records: OrderRecords) -> Iterator[_Found]:
    if records.shipments and (records.message is None or records.message.failed):
        detail = records.message.detail if records.message else "the email service has no confirmation"
        yield Kind.NOT_MAILED, records.shipments[0].recorded_at, detail
