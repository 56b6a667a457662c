from collections.abc import AsyncIterator

import pytest

from shop_kit.storefront import Storefront, Visitor, storefront
from shop_kit.storefront_backends import Backends


@pytest.fixture
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as running:
        yield running


@pytest.fixture
async def visitor(shop: Storefront) -> AsyncIterator[Visitor]:
    async with shop.visitor() as visitor:
        yield visitor


@pytest.fixture
def backends(shop: Storefront) -> Backends:
    return shop.backends
