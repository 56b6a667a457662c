"""A shop with only the ad service, which needs no other service and no database."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.workspace import Program, discover, find


@pytest.fixture
def ad() -> Program:
    return find(discover(), "ad")


@pytest.fixture
def port() -> Iterator[int]:
    with reserved(1) as (port,):
        yield port


@pytest.fixture
async def shop(ad: Program, port: int, tmp_path: Path) -> AsyncIterator[Shop]:
    async with Shop([ad], tmp_path, {"ad": port}) as shop:
        yield shop


@pytest.fixture
async def process(shop: Shop) -> Process:
    await shop["ad"].wait_until_serving()
    return shop["ad"]
