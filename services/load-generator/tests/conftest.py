from collections.abc import AsyncIterator

import pytest

from shop_testkit.fake_storefront import FakeStorefront, serving


@pytest.fixture
async def shop() -> AsyncIterator[FakeStorefront]:
    async with serving(FakeStorefront()) as storefront:
        yield storefront
