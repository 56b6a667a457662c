import asyncio

from shop_cli.local.processes import Process, Shop
from shop_cli.local.supervision import supervise


async def test_a_service_that_ends_is_restarted(shop: Shop, process: Process) -> None:
    supervision = asyncio.create_task(supervise(shop))
    process.kill()
    async with asyncio.timeout(30):
        while process.starts < 2 or not await process.is_serving():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    supervision.cancel()
    await asyncio.gather(supervision, return_exceptions=True)
