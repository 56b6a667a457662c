"""The smoke call that each service ships succeeds against a whole shop with default data."""

import asyncio
import uuid

import pytest

from shop_cli.local.workspace import Program, discover_services
from shop_kit.running_shop import RunningShop
from shop_kit.smoke import by_full_name, smoke_call
from shop_smoke import send

CONCURRENT_CALLS = 8


@pytest.mark.parametrize("program", discover_services(), ids=lambda program: program.name)
async def test_smoke_calls_of_the_own_service_succeed_concurrently(shop: RunningShop, program: Program) -> None:
    words = program.name.split("-")
    assert smoke_call(program, "id").service == f"shop.{''.join(word.capitalize() for word in words)}Service"
    ids = [uuid.uuid4().hex for _ in range(CONCURRENT_CALLS)]
    channels = by_full_name(shop.channels)
    await asyncio.gather(*(send(smoke_call(program, unique), channels, key=unique) for unique in ids))
