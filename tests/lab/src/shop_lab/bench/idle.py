"""CPU that a running shop uses without load: `shop up` with its control room, and all its services."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shop_cli.local.health import is_serving
from shop_cli.local.run_file import read_run
from shop_cli.local.workspace import discover
from shop_kit.waiting import wait_until
from shop_lab.bench.measure import cpu_seconds, with_descendants
from shop_lab.bench.rounds import Figures, Rows, interleaved, row

SECONDS = 5
_START_SECONDS, _SETTLING_SECONDS = 60, 5


async def measure(number_of_rounds: int) -> Rows:
    """Return milliseconds of CPU a second of all processes together, and of that of `shop up` itself."""
    async with _shop_up() as pid:
        await asyncio.sleep(_SETTLING_SECONDS)
        made = await interleaved({"": lambda: _round(pid)}, number_of_rounds)
    return {"shop up with all services": row(made[""])}


async def _round(pid: int) -> Figures:
    pids = with_descendants(pid)
    before, before_alone = cpu_seconds(pids), cpu_seconds([pid])
    await asyncio.sleep(SECONDS)
    return {
        "cpu_milliseconds_a_second": (cpu_seconds(pids) - before) / SECONDS * 1000,
        "of_shop_up_itself": (cpu_seconds([pid]) - before_alone) / SECONDS * 1000,
    }


@asynccontextmanager
async def _shop_up() -> AsyncIterator[int]:
    """Run `shop up` on free ports; yield its process id once everything serves."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / "up.log").open("wb") as output:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "shop_cli", "up", "--any-ports", "--folder", name), stdout=output, stderr=output
            )
        try:
            await wait_until(lambda: _serves(folder), _START_SECONDS)
            yield child.pid
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.wait()


async def _serves(folder: Path) -> bool:
    run = read_run(folder)
    if run is None:
        return False
    states = [is_serving(program, run.addresses[program.name]) for program in discover()]
    return all(await asyncio.gather(*states))
