"""What must hold after a run: most invariants of `shop prove`, and those that only a simulation can check.

I2 and I7 are written again here, from the ledgers alone, so that one mistake in a checker does not hide a defect.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shop_cli.output.printing import counted
from shop_lab.world.evidence import ClientOutcome, Evidence, OrderEvidence, Shipment
from shop_lab.world.invariants import INVARIANTS

_NEVER_EXCUSED = frozenset({"I1", "I3"})
_NOT_AFTER_LOSSES = frozenset({"I4", "I5", "I6", "I8"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The evidence after a run, and its unfinished orders in words.

    If the journal has lost commits, an order may be forgotten, which excuses whatever its customer is answered later,
    but neither a second charge nor a second shipment.
    """

    evidence: Evidence
    unfinished: tuple[str, ...]

    @property
    def lossy(self) -> bool:
        return self.evidence.journal_loses_commits


def violations_of(outcome: Outcome) -> list[str]:
    """Return the violations of all invariants, each with the invariant's name."""
    names = _NEVER_EXCUSED if outcome.lossy else _NEVER_EXCUSED | _NOT_AFTER_LOSSES
    shared = [each for each in INVARIANTS if each.name in names]
    found = [f"{each.name}: {text}" for each in shared for text in each.find_violations(outcome.evidence)]
    found += [f"I2: {text}" for text in _charged_if_and_only_if_shipped(outcome)]
    found += [f"I7: {text}" for text in _carts_add_up(outcome.evidence)]
    found += [f"S1: {text}" for text in outcome.unfinished]
    return found


def _charged_if_and_only_if_shipped(outcome: Outcome) -> Iterator[str]:
    for order in outcome.evidence.orders:
        charges, shipments = counted(len(order.charges), "charge"), counted(len(order.shipments), "shipment")
        is_complete = len(order.charges) == len(order.shipments) or _is_excused(order, outcome)
        if len(order.shipments) > outcome.evidence.most_effects_of(order) or not is_complete:
            yield f"order {order.intent.number}: {charges}, {shipments}"
        if order.response.outcome is ClientOutcome.CART_EMPTIED and not (order.shipments or outcome.lossy):
            yield f"order {order.intent.number}: the cart was emptied but nothing was shipped"


def _is_excused(order: OrderEvidence, outcome: Outcome) -> bool:
    """Return whether an operator has to settle the order, or the journal has lost it."""
    is_forgotten = order.journal_record is None or order.intent.may_order_again
    return order.is_flagged or (outcome.lossy and is_forgotten)


def _carts_add_up(evidence: Evidence) -> Iterator[str]:
    """Whatever customers added is shipped or in the cart: both only while operators have to settle an order.

    Also both if the journal has lost an order, but even then nothing is shipped twice, and nothing vanishes.
    """
    for cart in evidence.carts:
        user_id = cart.customer.user_id
        orders = [order for order in evidence.orders if order.intent.user_id == user_id]
        added, left = Counter(cart.added), Counter(cart.contents or {})
        bought = _items_of(shipment for order in orders for shipment in order.bought)
        shipped = _items_of(shipment for order in orders for shipment in order.shipments)
        is_lossy_but_right = evidence.journal_loses_commits and shipped <= added <= shipped + left
        if added != bought + left and not is_lossy_but_right:
            yield f"{user_id} added {dict(added)}, got {dict(shipped)}, and the cart contains {cart.contents}"


def _items_of(shipments: Iterable[Shipment]) -> Counter[str]:
    items = Counter[str]()
    for shipment in shipments:
        items.update(shipment.items)
    return items
