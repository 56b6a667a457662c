"""Where the CPU time of an order goes: by process and category, under load, beside the bare calls between processes.

`python -m shop_lab.bench costs` shows it. Plain rounds count the CPU time of every thread; then py-spy profiles one
process after the other, and a thread's samples say how its time is divided. py-spy stops a process for every sample,
so times of profiled rounds are not used.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from shop import checkout_pb2
from shop_cli.local.ports import reserved
from shop_cli.local.processes import inherited
from shop_lab.bench import cost_categories, ghz, orders
from shop_lab.bench.measure import running_script
from shop_lab.bench.noise import cpu_seconds_by_process
from shop_lab.bench.orders import Shape
from shop_lab.bench.rounds import Rows, Spread
from shop_lab.bench.shops import Running, Variant, running

BARE = "bare calls at the same rate"
TOTAL, ALL = "an order", "all"
_SAMPLES_A_SECOND = 100
_ATTACH_SECONDS = 1.5
_LEAST_MILLISECONDS = 0.05
# The calls that every order makes besides its own, by the process that answers them.
CALLS = {
    "cart": ["shop.CartService/GetCart", "shop.CartService/EmptyCart"],
    "payment": ["shop.PaymentService/Charge"],
    "shipping": ["shop.ShippingService/ShipOrder"],
}

Threads = dict[int, float]


async def measure(variant: Variant, shape: Shape, number_of_rounds: int) -> Rows:
    """Return milliseconds of CPU per order: a row for each category, a column for each process."""
    async with running(variant) as shop:
        await orders.run(shop, Shape(9, 16, 200))
        plain = [await _plain_round(shop, shape) for _ in range(number_of_rounds)]
        totals = {name: median(each.processes[name] for each in plain) for name in plain[0].processes}
        used = [name for name, milliseconds in totals.items() if milliseconds >= _LEAST_MILLISECONDS]
        table: dict[str, dict[str, float]] = defaultdict(dict)
        for name in used:
            threads = {
                thread: median(each.threads[name].get(thread, 0.0) for each in plain)
                for thread in plain[-1].threads[name]
            }
            is_store = name in {store.name for store in shop.stores}
            found = {} if is_store else await _profile(shop, name, shape)
            parts = {"database servers": totals[name]} if is_store else divide(totals[name], threads, found)
            for category, milliseconds in parts.items():
                table[category][name] = milliseconds
        rate = median(each.orders_a_second for each in plain)
    ordered = dict(sorted(table.items(), key=lambda item: -sum(item[1].values())))
    ordered[BARE] = await bare_calls(rate, shape)
    sums = [{ALL: sum(each.processes.values()), **each.processes} for each in plain]
    total = {name: Spread.of([each[name] for each in sums]) for name in (ALL, *used)}
    return {TOTAL: total, **{category: _row(row, used) for category, row in ordered.items()}}


@dataclass(frozen=True)
class PlainRound:
    """Milliseconds of CPU per order, by process, and by process and thread id."""

    orders_a_second: float
    processes: dict[str, float]
    threads: dict[str, Threads]


async def _plain_round(shop: Running, shape: Shape) -> PlainRound:
    requests = await orders.prepare(shop.shop, shape)
    await asyncio.sleep(_ATTACH_SECONDS)
    processes = cpu_seconds_by_process(shop.pids)
    threads = {name: thread_seconds(pid) for name, pid in shop.pids.items()}
    result = await orders.place(shop.shop, requests, shape.in_flight)
    await asyncio.sleep(1)
    later = cpu_seconds_by_process(shop.pids)
    return PlainRound(
        result.calls_a_second,
        {name: (later[name] - before) / shape.orders * 1000 for name, before in processes.items()},
        {
            name: {
                thread: (seconds - threads[name].get(thread, 0.0)) / shape.orders * 1000
                for thread, seconds in thread_seconds(pid).items()
            }
            for name, pid in shop.pids.items()
        },
    )


def thread_seconds(pid: int) -> Threads:
    """Return the CPU time that each thread of a process has used so far, by thread id."""
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            found[int(folder.name)] = int((folder / "schedstat").read_text().split()[0]) / 1e9
    return found


def divide(total: float, threads: Threads, shares: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Divide a process's time among categories. Threads that py-spy does not see are those of gRPC's core."""
    found: dict[str, float] = defaultdict(float)
    for thread, milliseconds in threads.items():
        for category, share in shares.get(thread, {cost_categories.CORE: 1.0}).items():
            found[category] += milliseconds * share
    found[cost_categories.REST] += total - sum(threads.values())  # of threads that have ended
    return dict(found)


async def _profile(shop: Running, name: str, shape: Shape) -> dict[int, dict[str, float]]:
    """Place orders while py-spy profiles a process; return the shares of its threads."""
    requests = await orders.prepare(shop.shop, shape)
    with tempfile.NamedTemporaryFile("r", suffix=".folded") as file:
        options = ["--pid", str(shop.pids[name]), "--native", "--threads", "--full-filenames", "--format", "raw"]
        options += ["--rate", str(_SAMPLES_A_SECOND), "--output", file.name]
        child = await asyncio.create_subprocess_exec(
            py_spy(), "record", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        await asyncio.sleep(_ATTACH_SECONDS)
        await orders.place(shop.shop, requests, shape.in_flight)
        if child.returncode is None:
            child.send_signal(signal.SIGINT)
        output = (await child.communicate())[0].decode()
        samples = cost_categories.parse(file.read())
    if not samples:
        sys.exit(f"py-spy cannot profile {name}: {output}")
    return cost_categories.shares(samples)


def py_spy() -> str:
    """Return the path of py-spy in this interpreter's environment."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    return program or sys.exit("py-spy is not installed: run `make setup`")


async def bare_calls(orders_a_second: float, shape: Shape) -> dict[str, float]:
    """Return milliseconds of CPU by process of an order's calls alone, at the same rate."""
    script = Path(__file__).with_name("bare_order_service.py")
    async with AsyncExitStack() as stack:
        *ports, front = stack.enter_context(reserved(len(CALLS) + 1))
        pids, calls = {}, []
        for (name, methods), port in zip(CALLS.items(), ports, strict=True):
            pids[name] = await stack.enter_async_context(running_script(script, port, inherited(os.environ)))
            calls += [f"127.0.0.1:{port}/{method}" for method in methods]
        variables = {**inherited(os.environ), "CALLS": ",".join(calls)}
        pids["checkout"] = await stack.enter_async_context(running_script(script, front, variables))
        requests = [checkout_pb2.PlaceOrderRequest(user_id="bench")] * shape.orders
        for rate in (0.0, orders_a_second):  # the first is the warm-up
            before = cpu_seconds_by_process(pids)
            address = f"127.0.0.1:{front}"
            await ghz.run(address, orders.METHOD, requests, shape.in_flight, orders.PROTO, calls_a_second=round(rate))
        later = cpu_seconds_by_process(pids)
    return {name: (later[name] - before[name]) / shape.orders * 1000 for name in pids}


def _row(row: Mapping[str, float], names: list[str]) -> dict[str, Spread]:
    values = {ALL: sum(row.values()), **{name: row.get(name, 0.0) for name in names}}
    return {name: Spread.of([value]) for name, value in values.items()}
