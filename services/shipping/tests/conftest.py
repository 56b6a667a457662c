"""What the shipping tests share: a parcel that nothing is wrong with, and a rate card of round figures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chassis.money import Money
from shipping_service.domain import Address, Bracket, Item, Parcel, RateCard, Zone

ADDRESS = Address("Lindenweg 7", "Bremen", "HB", "Germany", 28195)
ITEMS = (Item("pan", 1), Item("knife", 2))


def usd(units: int) -> Money:
    return Money.of("USD", units)


@pytest.fixture
def parcel() -> Callable[..., Parcel]:
    """Makes a parcel of three pieces to Germany, but for the named parts of its address, or its items."""

    def make(items: tuple[Item, ...] = ITEMS, **changed: Any) -> Parcel:
        return Parcel(replace(ADDRESS, **changed), items)

    return make


@pytest.fixture
def rate_card() -> RateCard:
    """Two brackets in Germany: up to 2 pieces 10, up to 5 20, each further one 3. Elsewhere 50, and 9 for each more."""
    germany = Zone("germany", (Bracket(2, usd(10)), Bracket(5, usd(20))), usd(3))
    return RateCard({"germany": germany, "de": germany}, Zone("elsewhere", (Bracket(1, usd(50)),), usd(9)))
