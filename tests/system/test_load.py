"""tests/e2e/load.py, which loads a release on a cluster, works against a local shop."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from shop_lab.world.running_shop import RunningShop

ROOT = Path(__file__).parents[2]
SECONDS, RATE = 2, 3


async def answer_with_no_employees(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]")
    await writer.drain()
    writer.close()


def copy_scripts(shop: RunningShop, folder: Path) -> Path:
    """Put load.py and the smoke modules into one folder, as tests/e2e/cluster.sh does."""
    for process in shop.processes:
        module = process.program.module
        smoke = ROOT / "services" / process.name / "src" / module / "smoke.py"
        shutil.copy(smoke, folder / f"smoke_{module.removesuffix('_service')}.py")
    return Path(shutil.copy(ROOT / "tests/e2e/load.py", folder))


async def test_the_load_of_the_cluster_test_calls_every_service(shop: RunningShop, tmp_path: Path) -> None:
    async with await asyncio.start_server(answer_with_no_employees, "127.0.0.1", 0) as employees:
        port = employees.sockets[0].getsockname()[1]
        script = copy_scripts(shop, tmp_path)
        load = await asyncio.create_subprocess_exec(
            *(sys.executable, script, str(SECONDS), str(RATE)),
            env={**os.environ, **shop.addresses, "EMPLOYEE_API_URL": f"http://127.0.0.1:{port}"},
            stdout=PIPE,
            stderr=STDOUT,
        )
        output = (await load.communicate())[0].decode()
    assert load.returncode == 0, output
    started, summary = output.splitlines()
    assert started == "started"
    assert json.loads(summary)["calls"] == SECONDS * RATE * (len(list(shop.processes)) + 1)
