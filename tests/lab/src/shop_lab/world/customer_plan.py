"""Plan the customers of a run and their orders from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto

_LUHN_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY")
_RIVAL_SHARE = 0.08
_SECOND_SHARE = 0.15
_RETURN_SHARE = 0.15
_RETURNS_AFTER_SECONDS = (1.5, 5.0)
_REFILL_SHARE = 0.3
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
        key: the idempotency key; without one checkout derives the key from the cart's etag.
        late_line: added to the cart while the order is being placed; not part of the order.
        max_tries: the customer gives up after so many tries; None for no limit.
        seed: of the customer's random choices while ordering.
        rival: the number of another order of the same cart contents, of which at most one may be placed.
        returns_after_seconds: between a failed try and the next one, of a customer who leaves and comes back; 0 for one
            who retries at once.
        refill: afterwards added to the emptied cart and not ordered.
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
    rival: int | None = None
    returns_after_seconds: float = 0.0
    refill: Line | None = None


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer who places one order after the other from the same cart, or two rival ones at about the same time."""

    user_id: str
    intents: tuple[Intent, ...]


def plan_customers(orders: int, seed: int, products: Sequence[str], *, patient: bool = False) -> list[Customer]:
    """Plan customers with so many orders in total: one each, for some two equal ones in a row or at once.

    Patient customers place no two orders at once, and change no cart while they order it.
    """
    rng = random.Random(f"customers {seed}")  # noqa: S311 - a schedule, not a secret
    planned: list[Customer] = []
    number = 0
    while number < orders:
        user_id = f"customer-{seed}-{number}"
        first = _random_intent(rng, number, user_id, products)
        intents = [first]
        repeatable = first.kind is OrderKind.VALID and first.late_line is None and number + 1 < orders
        share = rng.random()
        if repeatable and share < _RIVAL_SHARE:
            intents = _rivals(rng, first)
        elif repeatable and share < _RIVAL_SHARE + _SECOND_SHARE:
            intents.append(_second_intent(rng, first))
        elif repeatable and share < _RIVAL_SHARE + _SECOND_SHARE + _REFILL_SHARE:
            intents = [replace(first, refill=first.lines[0])]
        if patient:
            intents = [
                replace(intent, late_line=None, rival=None, refill=None, returns_after_seconds=0) for intent in intents
            ]
        planned.append(Customer(user_id, tuple(intents)))
        number += len(intents)
    return planned


def valid_intent(number: int, user_id: str, lines: Sequence[Line], key: str | None) -> Intent:
    """Return a valid order of a customer who retries without limit."""
    return Intent(
        number=number,
        user_id=user_id,
        email=f"order-{number}@prove.example.com",
        street=f"{number} Proving Ground",
        card_number=card_number(number),
        card_year=datetime.now(UTC).year + 2,
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
    total = sum(
        _LUHN_DOUBLED[int(digit)] if index % 2 == 0 else int(digit) for index, digit in enumerate(reversed(digits))
    )
    return f"{digits}{-total % 10}"


def _random_intent(rng: random.Random, number: int, user_id: str, products: Sequence[str]) -> Intent:
    (kind,) = rng.choices(list(OrderKind), [93, 4, 3])
    key = _random_key(rng) if rng.random() < 0.5 else None
    *chosen, late = rng.sample(products, 1 + rng.randint(1, 3))
    lines = [Line(product_id, rng.randint(1, 4)) for product_id in chosen]
    if kind is OrderKind.WITHDRAWN_PRODUCT:
        lines.append(Line(WITHDRAWN_PRODUCT_ID, 1))
    valid = valid_intent(number, user_id, lines, key)
    # Without a key the cart's etag is the key, so a retry after a change of the cart would be a different order.
    has_late_line = key is not None and kind is OrderKind.VALID and rng.random() < 0.2
    return replace(
        valid,
        kind=kind,
        card_year=valid.card_year - (4 if kind is OrderKind.EXPIRED_CARD else 0),
        currency=rng.choice(_CURRENCIES),
        late_line=Line(late, 1) if has_late_line else None,
        max_tries=rng.randint(1, 3) if rng.random() < 0.1 else None,
        seed=rng.getrandbits(32),
        returns_after_seconds=rng.uniform(*_RETURNS_AFTER_SECONDS) if rng.random() < _RETURN_SHARE else 0.0,
    )


def _second_intent(rng: random.Random, first: Intent) -> Intent:
    """Return an order of the same products with another card, street and e-mail address."""
    key = None if first.key is None else _random_key(rng)
    second = valid_intent(first.number + 1, first.user_id, first.lines, key)
    return replace(second, currency=first.currency, max_tries=first.max_tries, seed=rng.getrandbits(32))


def _rivals(rng: random.Random, first: Intent) -> list[Intent]:
    """Return two orders of one cart: a customer who uses two windows, or who tries another card after a failure."""
    second = replace(_second_intent(rng, first), key=_random_key(rng) if rng.random() < 0.5 else None)
    max_tries = 1 if rng.random() < 0.5 else None
    return [
        replace(first, rival=second.number, max_tries=max_tries),
        replace(second, rival=first.number, max_tries=None),
    ]


def _random_key(rng: random.Random) -> str:
    return f"key-{rng.getrandbits(64):016x}"
