"""The invariants about sums: I7, what carts contain, and I8, what orders cost."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations

from chassis.rpc.wire import money_from_wire
from chassis.values.money import Money, total
from shop.order_pb2 import OrderResult
from shop_lab.world.evidence import Evidence, OrderEvidence, Shipment


def carts_add_up(evidence: Evidence) -> Iterator[str]:
    """Yield the violations of I7.

    If the journal has lost an order, what it bought may still be in the cart; but even then nothing is bought twice.
    """
    excused = {order.intent.user_id for order in evidence.orders if evidence.excuses(order)}
    for cart in evidence.carts:
        user_id, added = cart.customer.user_id, Counter(cart.added)
        if cart.contents is None:
            yield f"the cart of {user_id} could not be read"
            continue
        shipped = _items_of(shipment for order in evidence.orders_of[user_id] for shipment in order.shipments)
        left = Counter(cart.contents)
        adds_up = any(added == bought + left for bought in _perhaps_bought(evidence, user_id))
        if not adds_up and not (user_id in excused and shipped <= added <= shipped + left):
            yield f"{user_id} added {dict(added)}, got {dict(shipped)}, and the cart contains {dict(left)}"


def _perhaps_bought(evidence: Evidence, user_id: str) -> Iterator[Counter[str]]:
    """Yield the shipped items, with and without those of each order that is left to operators.

    These remain in the cart, unless the worker that shipped them had removed them when it died.
    """
    orders = evidence.orders_of[user_id]
    bought = [shipment for order in orders for shipment in order.bought]
    others = [shipment for order in orders for shipment in order.shipments if shipment not in order.bought]
    for count in range(len(others) + 1):
        for some in combinations(others, count):
            yield _items_of([*bought, *some])


def _items_of(shipments: Iterable[Shipment]) -> Counter[str]:
    items = Counter[str]()
    for shipment in shipments:
        items.update(shipment.items)
    return items


def sums_agree(evidence: Evidence) -> Iterator[str]:
    """Yield the violations of I8."""
    charged: Counter[str] = Counter()
    ordered: Counter[str] = Counter()
    for order in evidence.orders:
        expected = _expected_charges(order)
        for charge in order.charges:
            charged[charge.currency_code] += charge.total_nanos
        if order.charges and not expected:
            yield f"{order.name} was charged but its total is unknown"
        for total_of_order in expected if order.charges else ():
            ordered[total_of_order.currency_code] += total_of_order.total_nanos
        if expected and set(order.charges) - set(expected):
            yield f"{order.name} costs {expected} but was charged {', '.join(map(str, order.charges))}"
    for code, nanos in charged.items():
        if nanos != ordered[code]:
            yield f"charges add up to {Money(code, nanos)}, orders to {Money(code, ordered[code])}"


def _expected_charges(order: OrderEvidence) -> list[Money]:
    """Return the total in the response, without one the total in the journal; nothing if there is neither."""
    placed = order.response.order
    unanswered = order.further_records if placed is not None else order.records
    return [*([_order_total(placed)] if placed is not None else []), *(record.total for record in unanswered)]


def _order_total(order: OrderResult) -> Money:
    """Return the sum of an order's lines and its shipping cost."""
    parts = [order.shipping_cost, *(line.cost for line in order.items)]
    return total(order.shipping_cost.currency_code, map(money_from_wire, parts))
