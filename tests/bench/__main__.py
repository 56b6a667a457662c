"""`make bench`: speed, memory and disk space of the whole shop, as tables and as bench.json.

Absolute figures depend on the machine; compare the ratios to the bare echo of the same run.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import Program, default_ports, discover, discover_services, root

sys.path.insert(0, str(Path(__file__).parent))

import disk
import employees
import orders
import pages
import reads
from measure import running_script

_WITHOUT_JOURNAL = {"checkout": "shop_testkit.checkout_without_journal"}
_SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
_ALWAYS = {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}
_ORDER_ROUNDS = 3
_CONSOLE = Console(width=110)

Rows = dict[str, dict[str, float]]


@asynccontextmanager
async def running(
    telemetry: Mapping[str, str],
    *,
    modules: Mapping[str, str] | None = None,
    programs: Sequence[Program] = (),
) -> AsyncIterator[tuple[Shop, int, float]]:
    """Run a whole shop on its embedded defaults; yield it, a free port and the seconds until all of it served.

    Args:
        telemetry: environment variables of all processes.
        modules: replaces what `python -m` runs, by a service's name.
        programs: by default the gRPC services.
    """
    chosen = [
        replace(program, module=(modules or {}).get(program.name, program.module))
        for program in programs or discover_services()
    ]
    here = Path(__file__).parent
    names = default_ports(chosen)
    with reserved(len(names) + 2) as ports, tempfile.TemporaryDirectory() as folder:
        *own, sink, spare = ports
        environment = {**os.environ, **telemetry, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink}"}
        shop = Shop(chosen, Path(folder), dict(zip(names, own, strict=True)), environment)
        async with running_script(here / "sink_service.py", sink), shop:
            begun = min(process.started_at for process in shop)
            await shop.wait_until_serving()
            yield shop, spare, asyncio.get_running_loop().time() - begun


async def start_times() -> Rows:
    """Return seconds from exec to SERVING: each service alone, median of three; then the whole shop at once."""
    rows: Rows = {}
    async with running(_SAMPLED) as (shop, _, whole):
        for process in shop:
            seconds = []
            for _ in range(3):
                await process.stop()
                await process.start()
                seconds.append(await process.wait_until_serving())
            rows[process.name] = {"seconds": round(median(seconds), 2)}
    return {**rows, "whole shop": {"seconds": round(whole, 2)}}


async def order_runs() -> Rows:
    """Return medians of interleaved runs: lines x orders in flight, with the journal and without."""
    variants = {
        "3 lines, alone": ("on", {"lines": 3, "in_flight": 1, "orders": 300}),
        "3 lines, 16 in flight": ("on", {"lines": 3, "in_flight": 16, "orders": 1000}),
        "9 lines, alone": ("on", {"lines": 9, "in_flight": 1, "orders": 300}),
        "9 lines, 16 in flight": ("on", {"lines": 9, "in_flight": 16, "orders": 1000}),
        "3 lines, alone, no journal": ("off", {"lines": 3, "in_flight": 1, "orders": 300}),
        "3 lines, 16 in flight, no journal": ("off", {"lines": 3, "in_flight": 16, "orders": 1000}),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    async with (
        running(_SAMPLED) as (with_journal, _, _),
        running(_SAMPLED, modules=_WITHOUT_JOURNAL) as (without, _, _),
    ):
        ids = await orders.product_ids(with_journal)
        for shop in (with_journal, without):
            await orders.run(shop, ids, lines=9, in_flight=16, orders=200)
        for _ in range(_ORDER_ROUNDS):
            for name, (journal, shape) in variants.items():
                shop = with_journal if journal == "on" else without
                runs[name].append(await orders.run(shop, ids, **shape))
    return {name: {key: round(median(run[key] for run in made), 2) for key in made[0]} for name, made in runs.items()}


async def measure_all() -> dict[str, Rows]:
    """Measure and show all sections, one after the other."""
    found: dict[str, Rows] = {}
    for title, telemetry in (("reads, 10 % sampled", _SAMPLED), ("reads, all sampled", _ALWAYS)):
        async with running(telemetry) as (shop, spare, _):
            found[title] = await reads.measure(shop, spare)
            show(title, found[title])
    found["orders, 10 % sampled"] = await order_runs()
    show("orders, 10 % sampled", found["orders, 10 % sampled"])
    with_storefront = [program for program in discover() if program.name != "employee-api"]
    async with running(_SAMPLED, programs=with_storefront) as (shop, _, _):
        found["pages, 10 % sampled"] = await pages.measure(shop)
        show("pages, 10 % sampled", found["pages, 10 % sampled"])
    async with running(_SAMPLED) as (shop, _, _):
        found["memory"] = await reads.memory_under_load(shop)
        show("memory after so many calls, and after as many again", found["memory"])
    found["start"] = await start_times()
    show("seconds from exec to SERVING", found["start"])
    return found


def show(title: str, rows: Rows) -> None:
    """Print one section as a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    columns = list(next(iter(rows.values())))
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[column]:g}" for column in columns))
    _CONSOLE.print(table)


def main() -> None:
    """Measure everything and write bench.json to the repository's root."""
    found = asyncio.run(measure_all())
    found["bytes on disk"] = disk.main()
    show("bytes on disk per finished order", found["bytes on disk"])
    found["employee-api"] = employees.main()
    path = root() / "bench.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    _CONSOLE.print(f"written to {path.name}")


main()
