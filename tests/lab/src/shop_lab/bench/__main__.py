"""`make bench`: what an order costs, as a table and as bench.json; with --against, beside another commit's code.

All shops that are compared run at once and are loaded in turns of seconds. A figure is the median of all turns, a ratio
the median of the ratios within a turn; in brackets are the quartiles. CPU is that of all nine services, with embedded
stores, confirmations and telemetry, without the client. Figures of different runs are not comparable, ratios are.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shop_cli.local.workspace import root
from shop_lab.bench import shops
from shop_lab.bench.ghz import find_ghz
from shop_lab.bench.orders import Shape, Spread, in_turns, spreads
from shop_lab.world.interpreter import build_flags

_RESULTS = root() / "bench.json"
_CONSOLE = Console(width=max(140, Console().width))
_SHAPES = (Shape(3, 16), Shape(9, 16), Shape(3, 1))
SAMPLING = {
    "10 % sampled": {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
    "all sampled": {"OTEL_TRACES_SAMPLER": "parentbased_always_on"},
}

Rows = dict[str, dict[str, Spread]]


def main() -> None:
    """Measure, print a table and write bench.json to the repository's root."""
    options = _options()
    find_ghz()  # before anything takes time
    started = time.monotonic()
    built = " and ".join(name for name, used in build_flags().items() if used) or "no record of PGO or LTO"
    conditions = f"{os.cpu_count()} cores, Python {platform.python_version()} ({built})"
    conditions += f"; {options.turns} turns of {options.seconds:g} s"
    _CONSOLE.print(conditions)
    with ExitStack() as stack:
        shops.compile_bytecode(root(), sys.executable)
        checkouts = {"this code": root()}
        if options.against:
            name = shops.short_hash(options.against)
            _CONSOLE.print(f"building {name} ...")
            checkouts = {name: stack.enter_context(shops.worktree(options.against)), **checkouts}
        rows = asyncio.run(_measure(checkouts, options.turns, options.seconds))
    _show(rows)
    found: dict[str, Any] = {"conditions": conditions, "minutes": round((time.monotonic() - started) / 60, 1)}
    found["rows"] = {name: {figure: asdict(spread) for figure, spread in row.items()} for name, row in rows.items()}
    _RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    _CONSOLE.print(f"{found['minutes']} minutes; written to {_RESULTS.name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shop_lab.bench", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="the baseline is that commit's code, else 10 %% sampled")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.5, help="that a turn takes")
    return parser.parse_args()


async def _measure(checkouts: Mapping[str, Path], turns: int, seconds: float) -> Rows:
    """Return the figures of each checkout and sampling ratio, for each shape of orders."""
    variants = {f"{name}, {share}": (name, share) for share in SAMPLING for name in checkouts}
    first, rows = next(iter(variants)), Rows()
    async with AsyncExitStack() as stack:
        running = {
            variant: await stack.enter_async_context(shops.running(checkouts[name], SAMPLING[share]))
            for variant, (name, share) in variants.items()
        }
        oldest = next(iter(checkouts))
        for shape in _SHAPES:
            made = await in_turns(running, shape, turns, seconds)
            for variant, (name, share) in variants.items():
                # Another commit is compared within a sampling ratio; this code alone, with its own first ratio.
                baseline = f"{oldest}, {share}" if name != oldest else first
                rows[f"{shape}: {variant}"] = spreads(made, variant, None if variant == baseline else baseline)
        for variant, shop in running.items():
            memory, start = Spread.of([shop.resident_mebibytes()]), Spread.of([shop.seconds_to_serve])
            rows[f"afterwards: {variant}"] = {"MiB": memory, "start s": start}
    return rows


def _show(rows: Rows) -> None:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table("orders", *columns)
    for name, row in rows.items():
        table.add_row(name, *(str(row.get(column, "")) for column in columns))
    _CONSOLE.print(table)


main()
