"""What customers will want and what harm will be done, both from one seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto

_LUHN_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY")
WITHDRAWN = "withdrawn-product"


class Wish(Enum):
    """What an order is about."""

    GOODS = auto()
    """It can be fulfilled."""
    EXPIRED_CARD = auto()
    """Payment refuses its card."""
    WITHDRAWN_PRODUCT = auto()
    """The catalog does not have its product."""


@dataclass(frozen=True, slots=True)
class Line:
    """So many of a product."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An order that a customer wants.

    Attributes:
        number: counts orders from 0; the card, street and e-mail address are its alone.
        key: the idempotency-key; None leaves it to the cart's etag.
        late: put into the cart while the order is under way, and none of its concern.
        max_tries: after so many the customer walks away; None keeps on trying.
        seed: of the customer's own whims.
    """

    number: int
    user_id: str
    email: str
    street: str
    card_number: str
    card_year: int
    currency: str
    wish: Wish
    lines: tuple[Line, ...]
    key: str | None
    late: Line | None
    max_tries: int | None
    seed: int


@dataclass(frozen=True, slots=True)
class Customer:
    """Somebody who wants one order after the other, from one cart."""

    user_id: str
    intents: tuple[Intent, ...]


class Harm(Enum):
    """What is done to a process."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART_DATABASE = "database restart"


@dataclass(frozen=True, slots=True)
class Fault:
    """Harm to one process once `after` orders are finished.

    Attributes:
        seconds: until the process may start again or go on.
    """

    after: int
    harm: Harm
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Harmed:
    """Who is harmed, and how much more often than others."""

    name: str
    weight: int


def customers(orders: int, seed: int, products: Sequence[str]) -> list[Customer]:
    """So many orders, by customers who want one or, now and then, two of the same in a row."""
    rng = random.Random(f"customers {seed}")  # noqa: S311 - a schedule, not a secret
    made: list[Customer] = []
    number = 0
    while number < orders:
        user_id = f"customer-{seed}-{number}"
        first = _intent(rng, number, user_id, products)
        intents = [first]
        if first.wish is Wish.GOODS and first.late is None and number + 1 < orders and rng.random() < 0.15:  # noqa: PLR2004
            intents.append(_again(rng, first))
        made.append(Customer(user_id, tuple(intents)))
        number += len(intents)
    return made


def faults(
    orders: int, seed: int, *, kills: int, pauses: int, restarts: int, harmed: Sequence[Harmed], pause_seconds: float
) -> list[Fault]:
    """So many faults, spread over the run and over the processes; a pause takes one to one and a half pause_seconds."""
    rng = random.Random(f"faults {seed}")  # noqa: S311 - a schedule, not a secret
    harms = [Harm.KILL] * kills + [Harm.PAUSE] * pauses + [Harm.RESTART_DATABASE] * restarts
    rng.shuffle(harms)
    return [
        _fault(rng, (index + 1) * orders // (len(harms) + 1), harm, harmed, pause_seconds)
        for index, harm in enumerate(harms)
    ]


def card_number(number: int) -> str:
    """The number of a card that no bank issued: under 400000, which is for tests, with its Luhn check digit."""
    digits = f"400000{number:09d}"
    total = sum(
        _LUHN_DOUBLED[int(digit)] if index % 2 == 0 else int(digit) for index, digit in enumerate(reversed(digits))
    )
    return f"{digits}{-total % 10}"


def _fault(rng: random.Random, after: int, harm: Harm, harmed: Sequence[Harmed], pause_seconds: float) -> Fault:
    (target,) = rng.choices([each.name for each in harmed], [each.weight for each in harmed])
    seconds = pause_seconds * rng.uniform(1, 1.5) if harm is Harm.PAUSE else rng.uniform(0, 1)
    return Fault(after, harm, target if harm is not Harm.RESTART_DATABASE else "postgres", round(seconds, 3))


def plain(number: int, user_id: str, lines: Sequence[Line], key: str | None) -> Intent:
    """An order that nothing is wrong with, of a customer who keeps trying."""
    return Intent(
        number=number,
        user_id=user_id,
        email=f"order-{number}@prove.example.com",
        street=f"{number} Proving Ground",
        card_number=card_number(number),
        card_year=datetime.now(UTC).year + 2,
        currency="EUR",
        wish=Wish.GOODS,
        lines=tuple(lines),
        key=key,
        late=None,
        max_tries=None,
        seed=number,
    )


def _intent(rng: random.Random, number: int, user_id: str, products: Sequence[str]) -> Intent:
    (wish,) = rng.choices(list(Wish), [93, 4, 3])
    key = _key(rng) if rng.random() < 0.5 else None  # noqa: PLR2004
    *chosen, late = rng.sample(products, 1 + rng.randint(1, 3))
    lines = [Line(product_id, rng.randint(1, 4)) for product_id in chosen]
    if wish is Wish.WITHDRAWN_PRODUCT:
        lines.append(Line(WITHDRAWN, 1))
    good = plain(number, user_id, lines, key)
    # Without a key the cart's state is the key, so a changed cart is another order.
    comes_late = key is not None and wish is Wish.GOODS and rng.random() < 0.2  # noqa: PLR2004
    return replace(
        good,
        wish=wish,
        card_year=good.card_year - (4 if wish is Wish.EXPIRED_CARD else 0),
        currency=rng.choice(_CURRENCIES),
        late=Line(late, 1) if comes_late else None,
        max_tries=rng.randint(1, 3) if rng.random() < 0.1 else None,  # noqa: PLR2004
        seed=rng.getrandbits(32),
    )


def _again(rng: random.Random, first: Intent) -> Intent:
    """The same goods once more, as another order: another card, street and address."""
    key = None if first.key is None else _key(rng)
    again = plain(first.number + 1, first.user_id, first.lines, key)
    return replace(again, currency=first.currency, max_tries=first.max_tries, seed=rng.getrandbits(32))


def _key(rng: random.Random) -> str:
    return f"key-{rng.getrandbits(64):016x}"
