import asyncio
import socket

from shop_cli.local.ports import HOST
from shop_cli.local.processes import Process, Shop
from shop_cli.local.supervision import process_states, supervise


async def test_a_service_that_ends_is_restarted(shop: Shop, process: Process) -> None:
    supervision = asyncio.create_task(supervise(shop))
    process.kill()
    async with asyncio.timeout(30):
        while process.starts < 2 or not await process.is_serving():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    supervision.cancel()
    await asyncio.gather(supervision, return_exceptions=True)


async def test_a_service_that_cannot_be_restarted_names_the_port_that_is_in_use(shop: Shop, process: Process) -> None:
    await process.stop()
    with socket.create_server((HOST, process.port)):
        assert await process_states(shop) == {"ad": f"ended (0), port {process.port} is in use"}
    assert await process_states(shop) == {"ad": "ended (0)"}
