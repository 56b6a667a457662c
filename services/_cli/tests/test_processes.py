import asyncio
import os
import re
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chassis.errors import NotFound
from shop_cli.local.child_process import NotServing, ProcessDied, temporary_folder
from shop_cli.local.ports import HOST, PortInUse, reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.workspace import Program, discover, find
from shop_kit.waiting import wait_until

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


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_service_serves_and_after_its_death_again_at_its_old_address(process: Process, tmp_path: Path) -> None:
    assert await process.is_serving()
    assert '"serving"' in (tmp_path / ".shop" / "log" / "ad.log").read_text()
    before = process.address, process.pid
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert not await process.is_serving()
    await process.restart(LOG_LEVEL="error")
    assert (process.address, process.pid != before[1]) == (before[0], True)
    assert await process.is_serving()
    size = process.log_path.stat().st_size
    assert await process.stop() == 0
    assert process.log_path.stat().st_size == size  # a graceful stop logs no errors


async def test_a_paused_service_does_not_serve_until_it_is_resumed_and_can_be_stopped(process: Process) -> None:
    process.pause()
    assert not await process.is_serving()
    process.resume()
    assert await process.is_serving()
    process.pause()
    with pytest.raises(NotServing) as slow, temporary_folder("shop-test-") as folder:
        await process.wait_until_serving(timeout_seconds=0.1)
    assert re.match(rf"ad is not ready after 0\.1 s: .*too slow.* logs are in {folder}", slow.value.message)
    folder.rmdir()  # it was kept
    assert await process.stop() == 0


async def test_leaving_the_shop_with_an_error_stops_its_services(ad: Program, port: int, tmp_path: Path) -> None:
    shop = Shop([ad], tmp_path, {"ad": port})

    async def fail() -> None:
        async with shop:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert shop["ad"].exit_code is not None


async def test_services_end_when_their_parent_is_killed(port: int, tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), str(port), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    pid = int(await parent.stdout.readline())
    assert exists(pid)
    parent.kill()
    await parent.wait()
    await wait_until(lambda: not exists(pid))


@pytest.mark.parametrize("taken", ["ad", "ad-internal"])
async def test_a_port_in_use_is_detected_before_any_service_is_started(ad: Program, tmp_path: Path, taken: str) -> None:
    with reserved(2) as ports:
        by_name = dict(zip(("ad", "ad-internal"), ports, strict=True))
        shop = Shop([ad], tmp_path, by_name)
        with socket.create_server((HOST, by_name[taken])), pytest.raises(PortInUse, match=str(by_name[taken])):
            await shop.__aenter__()
    assert shop["ad"].pid is None


async def test_waiting_for_a_service_that_ends_raises_its_last_lines(ad: Program, port: int, tmp_path: Path) -> None:
    overrides = {"ad": {"ADS_FILE": "/nowhere"}}
    async with Shop([ad], tmp_path, {"ad": port}, overrides=overrides) as shop:
        with pytest.raises(ProcessDied, match="ad ended with status 2: ADS_FILE: "):
            await shop.wait_until_serving()


async def test_services_have_all_addresses_and_inherit_what_does_not_differ_between_services(
    ad: Program, tmp_path: Path
) -> None:
    catalog = Program("product-catalog", "product_catalog_service", 50053, "grpc")
    ports = {"ad": 1, "product-catalog": 2, "ad-internal": 3}
    given = {"DATABASE_URL": "postgresql://elsewhere", "REDIS_URL": "redis://here"}
    shop = Shop([ad, catalog], tmp_path, ports, given)
    found = {**shop["product-catalog"].environment, **shop["ad"].environment}
    assert (found["PRODUCT_CATALOG_ADDR"], found["AD_INTERNAL_ADDR"]) == ("127.0.0.1:2", "127.0.0.1:3")
    assert shop["ad"].internal_address == "127.0.0.1:3"
    assert ("DATABASE_URL" in found, found["REDIS_URL"]) == (False, "redis://here")
    with pytest.raises(NotFound, match="cart is not part of this shop"):
        shop["cart"]


async def test_the_secrets_of_a_service_are_not_among_its_data(port: int, tmp_path: Path) -> None:
    async with Shop([find(discover(), "payment")], tmp_path, {"payment": port}) as shop:
        await shop["payment"].wait_until_serving()
        key = shop["payment"].environment["HMAC_KEY"].encode()
        data = [path for path in (tmp_path / ".shop").rglob("*") if path.is_file()]
        assert "payment.db" in {path.name for path in data}
        assert [path.name for path in data if key in path.read_bytes()] == []


def test_a_secret_is_created_once_and_only_its_owner_can_read_it(ad: Program, tmp_path: Path) -> None:
    program = replace(ad, secrets=("KEY",))
    first, again = (Shop([program], tmp_path, {"ad": 1})["ad"].environment["KEY"] for _ in range(2))
    assert (len(first), again) == (64, first)
    (file,) = (tmp_path / ".shop-secrets" / "ad").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_shop_can_run_on_another_interpreter(ad: Program, port: int, tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\necho "$@" > "$0.arguments"\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    async with Shop([replace(ad, python=str(interpreter))], tmp_path, {"ad": port}) as shop:
        await shop.wait_until_serving()
    assert (tmp_path / "python.arguments").read_text() == f"-P -m {ad.module}\n"
