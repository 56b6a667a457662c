"""The smoke call that each service ships succeeds against a whole shop with default data."""

import asyncio
import uuid

import pytest

from chassis.rpc.smoke import send
from shop_cli.local.workspace import Program, discover_services
from shop_lab.world.running_shop import RunningShop
from shop_lab.world.smoke import by_full_name, smoke_call

CONCURRENT_CALLS = 8

each_service = pytest.mark.parametrize("program", discover_services(), ids=lambda program: program.name)


@each_service
def test_a_smoke_call_is_for_its_own_service(program: Program) -> None:
    words = program.name.split("-")
    assert smoke_call(program, "id").service == f"shop.{''.join(word.capitalize() for word in words)}Service"


@each_service
async def test_smoke_calls_succeed_concurrently(shop: RunningShop, program: Program) -> None:
    ids = [uuid.uuid4().hex for _ in range(CONCURRENT_CALLS)]
    channels = by_full_name(shop.channels)
    await asyncio.gather(*(send(smoke_call(program, unique), channels, key=unique) for unique in ids))


@each_service
async def test_a_smoke_call_without_setup_succeeds_again(shop: RunningShop, program: Program) -> None:
    call = smoke_call(program, uuid.uuid4().hex)
    channels = by_full_name(shop.channels)
    if not call.setup:
        for _ in range(2):
            await send(call, channels, key=uuid.uuid4().hex)
