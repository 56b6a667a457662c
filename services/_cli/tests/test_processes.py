import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from chassis.errors import NotFound
from shop_cli.local.ports import HOST, PortInUse
from shop_cli.local.processes import NotServing, Process, ProcessDied, Shop
from shop_cli.local.workspace import Program

PARENT = """
import asyncio, sys
from pathlib import Path
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import discover, find

async def main():
    async with Shop([find(discover(), "ad")], Path(sys.argv[1]), {"ad": int(sys.argv[2])}) as shop:
        print(shop["ad"].pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def exists(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> None:
    while exists(pid):  # noqa: ASYNC110 - nobody tells of another process's child
        await asyncio.sleep(0.02)


async def test_a_started_service_serves(process: Process) -> None:
    assert await process.is_serving()


async def test_a_stopped_service_has_drained_and_ended_well(process: Process) -> None:
    assert await process.stop() == 0


@pytest.mark.usefixtures("process")
def test_a_service_logs_to_a_file_of_its_name(tmp_path: Path) -> None:
    assert '"serving"' in (tmp_path / ".shop" / "log" / "ad.log").read_text()


async def test_a_killed_service_ends_by_the_signal(process: Process) -> None:
    process.kill()
    assert await process.wait() == -signal.SIGKILL


async def test_a_killed_service_does_not_serve(process: Process) -> None:
    process.kill()
    await process.wait()
    assert not await process.is_serving()


async def test_a_restarted_service_serves_at_its_old_address(process: Process) -> None:
    before = process.address, process.pid
    process.kill()
    await process.wait()
    await process.restart()
    assert process.address == before[0]
    assert process.pid != before[1]
    assert await process.is_serving()


async def test_a_restart_may_add_variables_for_this_time(process: Process) -> None:
    await process.restart(LOG_LEVEL="error")
    size = process.log_path.stat().st_size
    await process.stop()
    assert process.log_path.stat().st_size == size


async def test_a_paused_service_does_not_serve_until_it_is_resumed(process: Process) -> None:
    process.pause()
    assert not await process.is_serving()
    process.resume()
    assert await process.is_serving()


async def test_a_paused_service_can_be_stopped(process: Process) -> None:
    process.pause()
    assert await process.stop() == 0


async def test_leaving_the_shop_stops_its_services(ad: Program, port: int, tmp_path: Path) -> None:
    async with Shop([ad], tmp_path, {"ad": port}) as shop:
        pid = shop["ad"].pid
    assert not exists(pid)


async def test_leaving_the_shop_by_an_error_stops_its_services(ad: Program, port: int, tmp_path: Path) -> None:
    shop = Shop([ad], tmp_path, {"ad": port})

    async def fail() -> None:
        async with shop:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not exists(shop["ad"].pid)


async def test_services_die_with_a_parent_that_is_killed(port: int, tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), str(port), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    pid = int(await parent.stdout.readline())
    assert exists(pid)
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(20):
        await gone(pid)


async def test_a_taken_port_stops_the_start_before_any_service_runs(ad: Program, port: int, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        shop = Shop([ad], tmp_path, {"ad": port})
        with pytest.raises(PortInUse):
            await shop.__aenter__()
    assert shop["ad"].pid is None


async def test_waiting_for_a_service_that_ends_tells_why(ad: Program, port: int, tmp_path: Path) -> None:
    own = {"ad": {"ADS_FILE": "/nowhere"}}
    async with Shop([ad], tmp_path, {"ad": port}, own=own) as shop:
        with pytest.raises(ProcessDied, match="ad ended with status 2: ADS_FILE: "):
            await shop.wait_until_serving()


async def test_waiting_for_a_service_that_hangs_ends(process: Process) -> None:
    process.pause()
    with pytest.raises(NotServing, match=r"ad is not ready after 0\.1 s"):
        await process.wait_until_serving(timeout_seconds=0.1)


async def test_a_developers_settings_for_other_programs_stay_outside(ad: Program, tmp_path: Path) -> None:
    shop = Shop([ad], tmp_path, {"ad": 1}, {"DATABASE_URL": "postgresql://elsewhere", "REDIS_URL": "redis://here"})
    assert "DATABASE_URL" not in shop["ad"].environment
    assert shop["ad"].environment["REDIS_URL"] == "redis://here"


async def test_every_service_knows_the_addresses_of_all(ad: Program, tmp_path: Path) -> None:
    catalog = Program("product-catalog", "product_catalog_service", 50053, "grpc")
    shop = Shop([ad, catalog], tmp_path, {"ad": 1, "product-catalog": 2})
    assert shop["ad"].environment["PRODUCT_CATALOG_ADDR"] == "127.0.0.1:2"


async def test_a_service_that_is_not_part_of_the_shop_is_told_by_name(shop: Shop) -> None:
    with pytest.raises(NotFound, match="cart is not running here"):
        shop["cart"]
