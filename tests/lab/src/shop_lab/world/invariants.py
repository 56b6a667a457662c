"""The invariants I1 to I11, which must hold after a run whatever faults were injected."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from shop_cli.output.printing import counted
from shop_lab.world.evidence import (
    BOUGHT_BY_ANOTHER,
    INDEFINITE,
    NEEDS_REFUND,
    SETTLED,
    ClientOutcome,
    Evidence,
    OrderEvidence,
)
from shop_lab.world.sums import carts_add_up, sums_agree

PROGRESS_SHARE = 0.95
_NOT_AFTER_LOSSES = frozenset({"I4", "I5", "I6", "I8", "I10"})
"""A journal that has lost commits may have forgotten an order, which excuses any later answer to its customer."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A rule and the function that finds its violations."""

    name: str
    rule: str
    find_violations: Callable[[Evidence], Iterable[str]]


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """An invariant and its violations, one line each."""

    name: str
    rule: str
    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.violations


def check_invariants(evidence: Evidence) -> list[InvariantResult]:
    """Look for violations of every invariant.

    If the journal has lost commits, the order that it has lost may be incomplete: reconciliation finds it, or operators
    see it once its customer has repeated it. But it must not be charged or shipped twice, nor shipped without a charge.
    """
    return [
        InvariantResult(invariant.name, invariant.rule, tuple(invariant.find_violations(evidence)))
        for invariant in INVARIANTS
        if not (evidence.journal_loses_commits and invariant.name in _NOT_AFTER_LOSSES)
    ]


def _charged_at_most_once(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        if len(order.charges) > evidence.most_effects_of(order):
            yield f"{order.name} was charged {len(order.charges)} times"
    yield from evidence.unmatched_entries


def _charged_if_and_only_if_shipped(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        is_excused = evidence.excuses(order)
        left = sum(record.is_flagged for record in order.records)
        is_complete = 0 <= len(order.charges) - len(order.shipments) <= left or is_excused
        if not is_complete or len(order.shipments) > evidence.most_effects_of(order):
            yield f"{order.name}: {counted(len(order.charges), 'charge')}, {counted(len(order.shipments), 'shipment')}"
        if not is_excused:
            yield from _wrongly_flagged(order)
        if order.response.outcome is ClientOutcome.CART_EMPTIED and not order.shipments:
            yield f"{order.name}: the cart was emptied but nothing was shipped"
    if evidence.quiet_seconds is None:
        yield "orders were still unfinished long after the last fault"


def _wrongly_flagged(order: OrderEvidence) -> Iterator[str]:
    """An order is left to operators only if a peer has refused to settle it, and it is as its state says."""
    for state, reason in {(record.state, record.reason) for record in order.records if record.is_flagged}:
        if state not in order.justified_flags:
            yield f"{order.name} is {state} ({reason}), although no peer has refused to settle it"
        if not order.charges:
            yield f"{order.name} is {state}, but was not charged"
        if state == NEEDS_REFUND and order.shipments and not order.further_records:
            yield f"{order.name} is {state}, but was shipped"


def _shipped_only_if_charged(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        if order.shipments and not order.charges:
            yield f"{order.name} was shipped but not charged"


def _shipped_and_confirmed(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        order_ids = {confirmation.order_id for confirmation in order.confirmations}
        expected = len(order.bought)
        if order.shipments and len(order_ids) != expected:
            found = counted(len(order_ids), "order id")
            yield f"{order.name} was shipped and has confirmations for {found}, not {expected}"
        if len(order.confirmations) > len(order_ids):
            found = counted(len(order_ids), "order id")
            yield f"{order.name} has {len(order.confirmations)} confirmations for {found}"
        placed = order.response.order
        if placed is not None and placed.order_id not in order_ids:
            yield f"{order.name} has no confirmation of {placed.order_id}"
        if order.confirmations and not order.shipments:
            yield f"{order.name} was confirmed by e-mail but not shipped"
        yield from _missing_from_confirmations(order, evidence.product_names)


def _missing_from_confirmations(order: OrderEvidence, names: Mapping[str, str]) -> Iterator[str]:
    placed = order.response.order
    for confirmation in order.confirmations:
        expected = [confirmation.order_id, order.intent.street]
        if not any(shipment.tracking_id in confirmation.text for shipment in order.shipments):
            yield f"{order.name}: its confirmation contains no tracking id of a shipment"
        if placed is not None and placed.order_id == confirmation.order_id:
            expected.append(placed.shipping_tracking_id)
            products = [line.item.product_id for line in placed.items]
            expected += [product for product in products if names.get(product, product) not in confirmation.text]
        for text in expected:
            if text not in confirmation.text:
                yield f"{order.name}: its confirmation does not contain {text}"


def _responses_are_true(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        yield from (f"{order.name}: {contradiction}" for contradiction in order.response.contradictions)
        of_customer = evidence.orders_of[order.intent.user_id]
        have_effects = any(other.shipments or other.is_flagged for other in of_customer)
        if order.response.reason in BOUGHT_BY_ANOTHER and not have_effects:
            yield f"{order.name} was refused ({order.response.reason}), but no other order has bought anything"
        placed = order.response.order
        if placed is None:
            continue
        state = order.journal_record and order.journal_record.state
        if evidence.has_journal and state not in SETTLED:
            yield f"{order.name} got an OK response but its state in the journal is {state}"
        if order.repeated is not None and order.repeated.order != placed:
            yield f"{order.name}: a repeated request returned {order.repeated.reason or 'a different order'}"
        if placed.shipping_tracking_id not in {shipment.tracking_id for shipment in order.shipments}:
            yield f"{order.name}: the tracking id in the response is not that of the shipment"


def _refused_without_charge(evidence: Evidence) -> Iterator[str]:
    for order in evidence.orders:
        is_refused = order.response.outcome is ClientOutcome.REFUSED and not order.has_unanswered_request
        if is_refused and (order.charges or order.shipments) and not order.is_flagged:
            yield f"{order.name} was refused ({order.response.reason}) but charged or shipped"


def _progress(evidence: Evidence) -> Iterator[str]:
    persistent = [order for order in evidence.orders if order.intent.max_tries is None]
    answered = sum(order.response.outcome not in INDEFINITE for order in persistent)
    if answered < PROGRESS_SHARE * len(persistent):
        yield f"{answered} of {len(persistent)} persistent customers got a definite response: the run proves nothing"


INVARIANTS = (
    Invariant("I1", "at most one captured charge per order", _charged_at_most_once),
    Invariant("I2", "charged if and only if shipped, once, soon after the last fault", _charged_if_and_only_if_shipped),
    Invariant("I3", "no shipment without a charge", _shipped_only_if_charged),
    Invariant("I4", "every shipped order has one confirmation, which matches the response", _shipped_and_confirmed),
    Invariant("I5", "an OK response is true, and a repeated request returns the same", _responses_are_true),
    Invariant("I6", "no charge after a definite refusal", _refused_without_charge),
    Invariant("I7", "what customers added is shipped or in their carts, once", carts_add_up),
    Invariant("I8", "charges equal the totals of the orders, to the nano", sums_agree),
    Invariant("I9", "95 % of the customers who do not give up get a definite response", _progress),
    Invariant("I10", "the calls on each cart and key are linearizable", attrgetter("contradictions")),
    Invariant("I11", "no service has an unexpected error", attrgetter("unexpected_errors")),
)
