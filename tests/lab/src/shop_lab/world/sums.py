"""The invariants about sums: I7, what carts contain, and I8, what orders cost."""

from collections import Counter
from collections.abc import Iterator, Mapping

from chassis.rpc.wire import money_from_wire
from chassis.values.money import Money, total
from shop.order_pb2 import OrderResult
from shop_lab.world.evidence import CartEvidence, Evidence, OrderEvidence


def carts_add_up(evidence: Evidence) -> Iterator[str]:
    """Yield the violations of I7."""
    bought = _bought_by_user(evidence)
    excused = {order.intent.user_id for order in evidence.orders if evidence.excuses(order)}
    for cart in evidence.carts:
        user_id = cart.customer.user_id
        if user_id in excused:
            continue
        if cart.contents is None:
            yield f"the cart of {user_id} could not be read"
        elif not _same_quantities(cart.contents, _expected_contents(cart, bought[user_id])):
            added = f"added: {dict(cart.added)}, during the order: {dict(cart.added_late)}"
            yield f"the cart of {user_id} contains {dict(cart.contents)}; {added}"


def _bought_by_user(evidence: Evidence) -> dict[str, Counter[str]]:
    """Return the shipped items. Those of an order that is left to operators remain in its cart."""
    bought = {order.intent.user_id: Counter[str]() for order in evidence.orders}
    for order in evidence.orders:
        for shipment in () if order.is_flagged else order.shipments:
            bought[order.intent.user_id].update(shipment.items)
    return bought


def _expected_contents(cart: CartEvidence, bought: Counter[str]) -> Counter[str]:
    """Return what was added, minus what was bought."""
    expected = Counter(cart.added)
    expected.update(cart.added_late)
    expected.subtract(bought)
    return expected


def _same_quantities(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return all(left.get(product, 0) == right.get(product, 0) for product in {*left, *right})


def sums_agree(evidence: Evidence) -> Iterator[str]:
    """Yield the violations of I8."""
    charged: Counter[str] = Counter()
    ordered: Counter[str] = Counter()
    for order in evidence.orders:
        expected = _expected_charge(evidence, order)
        if expected is None and evidence.excuses(order):
            continue
        for charge in order.charges:
            charged[charge.currency_code] += charge.total_nanos
        if order.charges and expected is None:
            yield f"{order.name} was charged but its total is unknown"
        if expected is not None and order.charges:
            ordered[expected.currency_code] += expected.total_nanos
        if expected is not None and set(order.charges) - {expected}:
            yield f"{order.name} costs {expected} but was charged {', '.join(map(str, order.charges))}"
    for code, nanos in charged.items():
        if nanos != ordered[code]:
            yield f"charges add up to {Money(code, nanos)}, orders to {Money(code, ordered[code])}"


def _expected_charge(evidence: Evidence, order: OrderEvidence) -> Money | None:
    """Return the total in the response, without one the total in the journal, None if there is neither.

    An order that the journal had lost may have been recorded again with other contents than were charged: it is left to
    operators, and its total in the journal means nothing.
    """
    if order.response.order is not None:
        return _order_total(order.response.order)
    if order.journal_record is None or evidence.excuses(order):
        return None
    return order.journal_record.total


def _order_total(order: OrderResult) -> Money:
    """Return the sum of an order's lines and its shipping cost."""
    parts = [order.shipping_cost, *(line.cost for line in order.items)]
    return total(order.shipping_cost.currency_code, map(money_from_wire, parts))
