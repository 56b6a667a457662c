"""`make bench`: speed, memory and disk space of the whole shop, as tables and as bench.json.

Each figure is a median over interleaved rounds, with the range in brackets. Absolute figures depend on the machine:
compare ratios to the baseline of the same run.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from shop_cli.local.workspace import root
from shop_lab.bench import checkouts, clients
from shop_lab.bench.rounds import NOISE_LIMIT, Rows
from shop_lab.bench.sections import EXTRA, SECTIONS, SHORT, Plan
from shop_lab.bench.shops import Variant
from shop_lab.world.interpreter import build_flags

_RESULTS = root() / "bench.json"
_CONSOLE = Console(width=max(200, Console().width))


def main() -> None:
    """Measure the chosen sections and write bench.json to the repository's root."""
    options = _options()
    if options.section != ["floods"]:  # before anything takes time
        clients.find_ghz()
        clients.find_h2load()
    started = time.monotonic()
    with ExitStack() as stack:
        checkouts.compile_bytecode(root(), sys.executable)
        plan = SHORT if options.short else Plan()
        if {"orders", "sampling"} & set(options.section):
            plan = replace(plan, older=_older(options.against, stack))
        found: dict[str, Any] = {"interpreter": _describe_interpreter()}
        for name in options.section:
            title, measure = SECTIONS[name]
            rows = asyncio.run(measure(plan))
            _show(title, rows)
            found[name] = _as_json(rows)
            found["minutes"] = round((time.monotonic() - started) / 60, 1)
            _RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    _CONSOLE.print(f"{found['minutes']} minutes; written to {_RESULTS.name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shop_lab.bench", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all but {', '.join(EXTRA)}")
    parser.add_argument("--against", metavar="COMMIT", help="measure orders on that commit's code as well")
    parser.add_argument("--short", action="store_true", help="one small round each, to try the benchmarks themselves")
    options = parser.parse_args()
    options.section = options.section or [name for name in SECTIONS if name not in EXTRA]
    for name in options.section:
        if name not in SECTIONS:
            parser.error(f"{name!r} is no section: choose from {', '.join(SECTIONS)}")
    return options


def _older(commit: str | None, stack: ExitStack) -> dict[str, Variant]:
    """Build another commit's code."""
    if not commit:
        return {}
    name = checkouts.short_hash(commit)
    _CONSOLE.print(f"building {name} ...")
    folder = stack.enter_context(checkouts.worktree(commit))
    return {name: Variant(checkout=folder)}


def _describe_interpreter() -> str:
    """Print and return which interpreter runs all variants, and how it was built."""
    build = f"Python {platform.python_version()}, {build_flags()}"
    _CONSOLE.print(f"{os.cpu_count()} cores; a round is repeated when other work uses over {NOISE_LIMIT:g} % of one")
    _CONSOLE.print(build)
    return build


def _show(title: str, rows: Rows) -> None:
    """Print one section as a table; rows may have different columns."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(_abbreviated(column), justify="right")
    for name, row in rows.items():
        table.add_row(name, *(str(row.get(column, "")) for column in columns))
    _CONSOLE.print(table)


def _abbreviated(column: str) -> str:
    for word, unit in {"_": " ", "milliseconds": "ms", "microseconds": "µs", "megabytes": "MB"}.items():
        column = column.replace(word, unit)
    return column


def _as_json(rows: Rows) -> dict[str, Any]:
    return {name: {figure: asdict(spread) for figure, spread in row.items()} for name, row in rows.items()}


main()
