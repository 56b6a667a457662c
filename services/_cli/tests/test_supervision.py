import asyncio

from shop_cli.local.processes import Process, Shop
from shop_cli.local.supervision import keep_running


async def test_a_service_that_dies_is_started_again(shop: Shop, process: Process) -> None:
    keeping = asyncio.create_task(keep_running(shop))
    process.kill()
    async with asyncio.timeout(30):
        while process.starts < 2 or not await process.is_serving():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
