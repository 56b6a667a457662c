"""Plan the customers of a run and their orders from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice

from shop_kit.card_leaks import check_digit

_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY")
_RETURN_SHARE = 0.15
_RETURNS_AFTER_SECONDS = (1.5, 5.0)
_SOON_SECONDS = 0.02
_VALID_YEAR, _EXPIRED_YEAR = 2090, 2019
_DEVICES = {(1,): 60, (2,): 12, (1, 1): 16, (2, 1): 6, (1, 1, 1): 6}
"""How many orders each device of a customer places, and how often."""
WITHDRAWN_PRODUCT_ID = "withdrawn-product"


class OrderKind(Enum):
    """Whether an order can be fulfilled, or else who refuses it."""

    VALID = auto()
    EXPIRED_CARD = auto()
    """Payment refuses the card."""
    WITHDRAWN_PRODUCT = auto()
    """The catalog does not have the product."""


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity of a product."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An order that a customer is going to place.

    Attributes:
        number: counts orders from 0. No two orders share a card, street or e-mail address.
        lines: added to the cart immediately before; the order may buy more, or what another order has left of them.
        key: the idempotency key; without one checkout derives the key from the cart's etag.
        late_line: added to the cart while the order is being placed or soon after, and not ordered by this device.
        max_tries: the customer gives up after so many tries; None for no limit.
        seed: of the customer's random choices while ordering.
        after_seconds: before the lines are added: since the start, since the first device has filled the cart, or since
            the answer to the device's order before this one.
        returns_after_seconds: between a failed try and the next one, of a customer who leaves and comes back; 0 for one
            who retries at once.
        hasty: its customer sometimes hangs up and tries again, and repeats a request that was answered.
        contested: its customer also changes or orders the cart at other times, so that others may buy its lines.
    """

    number: int
    user_id: str
    email: str
    street: str
    card_number: str
    card_year: int
    currency: str
    kind: OrderKind
    lines: tuple[Line, ...]
    key: str | None
    late_line: Line | None
    max_tries: int | None
    seed: int
    after_seconds: float = 0.0
    returns_after_seconds: float = 0.0
    hasty: bool = False
    contested: bool = False

    @property
    def may_order_again(self) -> bool:
        """Whether a retry may be another order: without a key it is of what is in the cart by then."""
        return self.contested and self.key is None


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer with one cart, who never waits until it is empty, and the orders of each of the customer's devices."""

    user_id: str
    devices: tuple[tuple[Intent, ...], ...]

    @property
    def intents(self) -> list[Intent]:
        return [intent for device in self.devices for intent in device]


def plan_customers(orders: int, seed: int, products: Sequence[str], *, patient: bool = False) -> list[Customer]:
    """Plan customers with so many orders in total.

    Patient customers have one device and one order each, and change no cart while they order it.
    """
    rng = random.Random(f"customers {seed}")  # noqa: S311 - a schedule, not a secret
    planned: list[Customer] = []
    number = 0
    while number < orders:
        user_id = f"customer-{seed}-{number}"
        customer = plan_customer(rng, number, user_id, products, most_orders=1 if patient else orders - number)
        if patient:
            (only,) = customer.intents
            patiently = replace(only, late_line=None, contested=False, returns_after_seconds=0, hasty=False)
            customer = Customer(user_id, ((patiently,),))
        planned.append(customer)
        number += len(customer.intents)
    return planned


def plan_customer(
    rng: random.Random,
    number: int,
    user_id: str,
    products: Sequence[str],
    *,
    most_orders: int,
    longest_delay: float = 0.5,
) -> Customer:
    """Plan a customer whose orders count from a number."""
    (sizes,) = rng.choices(list(_DEVICES), list(_DEVICES.values()))
    if sum(sizes) > most_orders:
        sizes = (1,)
    first = _random_intent(rng, number, user_id, products)
    if sizes == (1,):
        return Customer(user_id, ((first,),))
    kind = OrderKind.VALID if first.kind is OrderKind.WITHDRAWN_PRODUCT else first.kind
    lines = tuple(line for line in first.lines if line.product_id != WITHDRAWN_PRODUCT_ID)
    first = replace(first, kind=kind, lines=lines, contested=True)
    further = [_next_intent(rng, first, number + index, longest_delay) for index in range(1, sum(sizes))]
    queue = iter([first, *further])
    return Customer(user_id, tuple(tuple(islice(queue, size)) for size in sizes))


def valid_intent(number: int, user_id: str, lines: Sequence[Line], key: str | None) -> Intent:
    """Return a valid order of a customer who retries without limit."""
    return Intent(
        number=number,
        user_id=user_id,
        email=f"order-{number}@prove.example.com",
        street=f"{number} Proving Ground",
        card_number=card_number(number),
        card_year=_VALID_YEAR,
        currency="EUR",
        kind=OrderKind.VALID,
        lines=tuple(lines),
        key=key,
        late_line=None,
        max_tries=None,
        seed=number,
    )


def card_number(number: int) -> str:
    """Return a card number with a valid Luhn check digit, in the range 400000, which is reserved for tests."""
    digits = f"400000{number:09d}"
    return digits + check_digit(digits)


def _random_intent(rng: random.Random, number: int, user_id: str, products: Sequence[str]) -> Intent:
    (kind,) = rng.choices(list(OrderKind), [93, 4, 3])
    *chosen, late = rng.sample(products, 1 + rng.randint(1, 3))
    lines = [Line(product_id, rng.randint(1, 4)) for product_id in chosen]
    if kind is OrderKind.WITHDRAWN_PRODUCT:
        lines.append(Line(WITHDRAWN_PRODUCT_ID, 1))
    valid = valid_intent(number, user_id, lines, _key(rng, number))
    has_late_line = kind is OrderKind.VALID and rng.random() < 0.2
    return replace(
        valid,
        kind=kind,
        card_year=_EXPIRED_YEAR if kind is OrderKind.EXPIRED_CARD else _VALID_YEAR,
        currency=rng.choice(_CURRENCIES),
        late_line=Line(rng.choice([late, *chosen]), 1) if has_late_line else None,
        max_tries=rng.randint(1, 3) if rng.random() < 0.1 else None,
        seed=rng.getrandbits(32),
        returns_after_seconds=rng.uniform(*_RETURNS_AFTER_SECONDS) if rng.random() < _RETURN_SHARE else 0.0,
        hasty=True,
        contested=has_late_line,
    )


def _next_intent(rng: random.Random, first: Intent, number: int, longest_delay: float) -> Intent:
    """Return an order of the same customer: of another line, of more of the same, or of what is in the cart anyway."""
    products = [line.product_id for line in first.lines]
    share = rng.random()
    lines = [] if share < 0.3 else [Line(rng.choice(products), rng.randint(1, 2))]
    valid = valid_intent(number, first.user_id, lines, _key(rng, number))
    years = number - first.number
    # Ledgers are joined by number and year, so even with the same number each order has a card of its own.
    card = replace(valid, card_number=first.card_number, card_year=valid.card_year + years)
    return replace(
        card if rng.random() < 0.5 else valid,
        currency=first.currency,
        max_tries=1 if rng.random() < 0.1 else None,
        seed=rng.getrandbits(32),
        after_seconds=rng.choice((0.0, rng.uniform(0, _SOON_SECONDS), rng.uniform(0, longest_delay))),
        hasty=True,
        contested=True,
    )


def _key(rng: random.Random, number: int) -> str | None:
    return f"key-{number}" if rng.random() < 0.5 else None
