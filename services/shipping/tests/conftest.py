"""Fixtures of the shipping tests: a valid parcel, a rate card, and an empty manifest on SQLite and PostgreSQL."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from chassis.values.orders import Address, Item
from shipping_service.domain import Bracket, Parcel, RateCard, Zone
from shipping_service.manifest.sql import SqlManifest, open_manifest

ADDRESS = Address("Lindenweg 7", "Bremen", "HB", "Germany", 28195)
ITEMS = (Item("pan", 1), Item("knife", 2))


@pytest.fixture
def parcel() -> Callable[..., Parcel]:
    """A function that makes a parcel of three pieces to Germany, or with other items or parts of the address."""

    def make(items: tuple[Item, ...] = ITEMS, **changed: Any) -> Parcel:
        return Parcel(replace(ADDRESS, **changed), items)

    return make


@pytest.fixture
def rate_card() -> RateCard:
    """Germany: $10 for up to 2 pieces, $20 for up to 5, $3 for each further piece. Elsewhere: $50, then $9 each."""
    germany = Zone("germany", [Bracket(2, Decimal(10)), Bracket(5, Decimal(20))], Decimal(3), ["germany", "de"])
    return RateCard([germany, Zone("elsewhere", [Bracket(1, Decimal(50))], Decimal(9))])


@pytest.fixture
async def manifest(database_url: str) -> AsyncIterator[SqlManifest]:
    async with open_manifest(database_url) as opened:
        yield opened
