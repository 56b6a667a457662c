"""I1 to I9: what must hold after a run, whatever was done to the processes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from chassis.money import Money, total
from chassis.wire import money_from_wire
from shop.order_pb2 import OrderResult
from shop_cli.prove.evidence import CartStory, Evidence, Story, Told

PROGRESS_SHARE = 0.95
_SETTLED = frozenset({"SHIPPED", "DONE"})


@dataclass(frozen=True, slots=True)
class Invariant:
    """A rule, and how to find what breaks it."""

    name: str
    rule: str
    broken_by: Callable[[Evidence], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant and what broke it, a line each."""

    name: str
    rule: str
    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing broke it."""
        return not self.violations


def judge(evidence: Evidence) -> list[Finding]:
    """Look for violations of every invariant."""
    return [Finding(each.name, each.rule, tuple(each.broken_by(evidence))) for each in INVARIANTS]


def counted(evidence: Evidence) -> dict[str, int]:
    """The run in numbers, the four that must be zero first."""
    stories = evidence.stories
    return {
        "double_charges": sum(len(story.charges) > 1 for story in stories),
        "double_shipments": sum(len(story.shipments) > 1 for story in stories),
        "charged_not_shipped": sum(bool(story.charges) and not story.shipments for story in stories),
        "lost_confirmations": sum(bool(story.shipments) and not story.mails for story in stories),
        "shipped_not_charged": sum(bool(story.shipments) and not story.charges for story in stories),
        "placed": sum(bool(story.charges and story.shipments) for story in stories),
        **{f"told_{told.name.lower()}": sum(story.answer.told is told for story in stories) for told in Told},
        "tries": sum(story.answer.tries for story in stories),
        "replays_compared": sum(story.replayed is not None for story in stories),
    }


def _charged_once(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        if len(story.charges) > 1:
            yield f"{_name(story)} was charged {len(story.charges)} times"
    yield from evidence.strangers


def _captured_is_shipped(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        if bool(story.charges) != bool(story.shipments) or len(story.shipments) > 1:
            yield f"{_name(story)}: {len(story.charges)} charges, {len(story.shipments)} shipments"
        if story.answer.told is Told.CART_GONE and not story.shipments:
            yield f"{_name(story)}: the cart is gone, nothing was shipped"
    if evidence.quiet_seconds is None:
        yield "orders were still open long after the last fault"


def _shipped_is_charged(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        if story.shipments and not story.charges:
            yield f"{_name(story)} was shipped and never charged"


def _shipped_is_mailed(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        order_ids = {mail.order_id for mail in story.mails}
        if story.shipments and len(order_ids) != 1:
            yield f"{_name(story)} was shipped, its mails are of {len(order_ids)} orders"
        if story.mails and not story.shipments:
            yield f"{_name(story)} was mailed and never shipped"
        yield from _wrong_words(story)


def _wrong_words(story: Story) -> Iterator[str]:
    for mail in story.mails:
        told = story.answer.order
        words = [mail.order_id, story.intent.street, *(shipment.tracking_id for shipment in story.shipments)]
        if told is not None:
            words += [told.order_id, told.shipping_tracking_id, *(line.item.product_id for line in told.items)]
        for word in words:
            if word not in mail.text:
                yield f"{_name(story)}: its mail does not say {word}"


def _told_is_true(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        yield from (f"{_name(story)}: {contradiction}" for contradiction in story.answer.contradictions)
        order = story.answer.order
        if order is None:
            continue
        if story.recorded is None or story.recorded.state not in _SETTLED:
            yield f"{_name(story)} was placed, the journal says {story.recorded and story.recorded.state}"
        if story.replayed is not None and story.replayed.order != order:
            yield f"{_name(story)}: asked again it was told {story.replayed.reason or 'another order'}"
        if [order.shipping_tracking_id] != [shipment.tracking_id for shipment in story.shipments]:
            yield f"{_name(story)}: the tracking id it was told is not its shipment's"


def _refused_is_not_charged(evidence: Evidence) -> Iterator[str]:
    for story in evidence.stories:
        if story.answer.told is Told.REFUSED and (story.charges or story.shipments):
            yield f"{_name(story)} was refused ({story.answer.reason}) and charged or shipped"


def _carts_add_up(evidence: Evidence) -> Iterator[str]:
    bought = _bought(evidence)
    for cart in evidence.carts:
        if cart.left is None:
            yield f"the cart of {cart.customer.user_id} could not be read"
        elif not any(_same(cart.left, allowed) for allowed in _allowed(cart, bought[cart.customer.user_id])):
            yield f"the cart of {cart.customer.user_id} holds {dict(cart.left)}, added {dict(cart.added)}"


def _bought(evidence: Evidence) -> dict[str, Counter[str]]:
    bought = {story.intent.user_id: Counter[str]() for story in evidence.stories}
    for story in evidence.stories:
        for shipment in story.shipments:
            bought[story.intent.user_id].update(shipment.items)
    return bought


def _allowed(cart: CartStory, bought: Counter[str]) -> Iterator[Counter[str]]:
    """What was added without what was bought; if something came in late, perhaps with it: the cart was another then."""
    everything = Counter(cart.added)
    everything.update(cart.late)
    left = everything.copy()
    left.subtract(bought)
    yield left
    if cart.late:
        yield everything


def _same(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return all(left.get(product, 0) == right.get(product, 0) for product in {*left, *right})


def _sums_agree(evidence: Evidence) -> Iterator[str]:
    charged: Counter[str] = Counter()
    ordered: Counter[str] = Counter()
    for story in evidence.stories:
        total_paid = _order_total(story)
        for charge in story.charges:
            charged[charge.currency_code] += charge.total_nanos
        if story.charges and total_paid is None:
            yield f"{_name(story)} was charged and nothing tells its total"
        if total_paid is not None and story.charges:
            ordered[total_paid.currency_code] += total_paid.total_nanos
        if total_paid is not None and set(story.charges) - {total_paid}:
            yield f"{_name(story)} costs {total_paid} and was charged {', '.join(map(str, story.charges))}"
    for code, nanos in charged.items():
        if nanos != ordered[code]:
            yield f"charged {Money(code, nanos)}, orders add up to {Money(code, ordered[code])}"


def _order_total(story: Story) -> Money | None:
    """By what the customer was told; for one who was told nothing, by the journal."""
    if story.answer.order is not None:
        return order_total(story.answer.order)
    return None if story.recorded is None else story.recorded.total


def order_total(order: OrderResult) -> Money:
    """The sum of an order's lines and its shipping."""
    parts = [order.shipping_cost, *(line.cost for line in order.items)]
    return total(order.shipping_cost.currency_code, map(money_from_wire, parts))


def _progress(evidence: Evidence) -> Iterator[str]:
    patient = [story for story in evidence.stories if story.intent.max_tries is None]
    answered = sum(story.answer.told not in {Told.NOTHING, Told.NOT_ASKED} for story in patient)
    if answered < PROGRESS_SHARE * len(patient):
        yield f"{answered} of {len(patient)} customers who kept trying got an answer: the run proves nothing"


def _name(story: Story) -> str:
    return f"order {story.intent.number}"


INVARIANTS = (
    Invariant("I1", "at most one captured charge per order", _charged_once),
    Invariant("I2", "captured if and only if shipped, once, soon after quiet", _captured_is_shipped),
    Invariant("I3", "no shipment without a charge", _shipped_is_charged),
    Invariant("I4", "every shipped order mailed, its mail says what was told", _shipped_is_mailed),
    Invariant("I5", "an OK reply is a placed order, and told again identically", _told_is_true),
    Invariant("I6", "a definite refusal, no charge", _refused_is_not_charged),
    Invariant("I7", "a cart holds what was added and not bought", _carts_add_up),
    Invariant("I8", "charges add up to the orders' totals, to the nano", _sums_agree),
    Invariant("I9", "95 % of those who keep trying get an answer", _progress),
)
