"""Whole shops as processes, one for each variant that the benchmarks compare."""

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from shop_cli.local.identities import Identities
from shop_cli.local.ports import reserved
from shop_cli.local.postgres import Postgres
from shop_cli.local.processes import Shop
from shop_cli.local.stores import Store, Valkey
from shop_cli.local.workspace import default_ports, discover, root
from shop_lab.bench.measure import bare_server, cpu_seconds_of_trees

SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
ALL_SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}
NONE_SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
_LASTING_CONNECTIONS = {"MAX_CONNECTION_AGE_SECONDS": "3600"}  # h2load does not open new ones
STORED = ("checkout", "payment", "shipping", "email")


@dataclass(frozen=True)
class Variant:
    """A way to run the shop.

    Attributes:
        environment: variables of all its processes.
        modules: replaces what `python -m` runs, by a service's name.
        stores: on PostgreSQL and Valkey instead of the embedded stores.
        checkout: the folder of the repository whose code it runs, with its packages in .venv; None for this one.
        storefront: with the storefront.
        tls: services speak mutual TLS.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: SAMPLED)
    modules: Mapping[str, str] = field(default_factory=dict)
    stores: bool = False
    checkout: Path | None = None
    storefront: bool = False
    tls: bool = False


@dataclass(frozen=True)
class Running:
    """A shop that serves, and the process ids of its services and stores."""

    shop: Shop
    seconds_to_serve: float
    stores: tuple[Store, ...] = ()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of services and stores, by name."""
        return {process.name: process.pid for process in (*self.shop, *self.stores) if process.pid}

    def cpu_seconds(self) -> float:
        """Return the CPU time that all services and stores have used so far."""
        return cpu_seconds_of_trees(self.pids.values())


@asynccontextmanager
async def running(variant: Variant, overrides: Mapping[str, Mapping[str, str]] | None = None) -> AsyncIterator[Running]:
    """Run a shop whose telemetry goes to a receiver that discards it; `overrides` are variables of single services."""
    programs = [
        replace(program, module=variant.modules.get(program.name, program.module))
        for program in discover(variant.checkout or root())
        if program.name not in ({"employee-api"} if variant.storefront else {"employee-api", "storefront"})
    ]
    names = default_ports(programs)
    async with AsyncExitStack() as stack:
        *own, sink = stack.enter_context(reserved(len(names) + 1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stores, overrides = await _start_stores(stack, folder) if variant.stores else ((), overrides)
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink}"}
        await stack.enter_async_context(bare_server("sink", sink))
        environment = {**os.environ, **_LASTING_CONNECTIONS, **variant.environment, **endpoint}
        ports = dict(zip(names, own, strict=True))
        python = str(variant.checkout / ".venv/bin/python") if variant.checkout else sys.executable
        begun = time.monotonic()
        identities = Identities.issue(folder / "tls", [program.name for program in programs]) if variant.tls else None
        started = Shop(programs, folder, ports, environment, overrides, python=python, identities=identities)
        shop = await stack.enter_async_context(started)
        await shop.wait_until_serving()
        yield Running(shop, time.monotonic() - begun, stores)


async def _start_stores(stack: AsyncExitStack, folder: Path) -> tuple[tuple[Store, ...], dict[str, dict[str, str]]]:
    """Start PostgreSQL and Valkey; return them and the variables of each service that uses one of them."""
    (port,) = stack.enter_context(reserved(1))
    postgres = await stack.enter_async_context(await Postgres.create(folder / "postgres"))
    valkey = await stack.enter_async_context(Valkey(folder, port))
    for name in STORED:
        await postgres.create_database(name)
    databases = {name: {"DATABASE_URL": postgres.url(name)} for name in STORED}
    return (postgres, valkey), {**databases, "cart": {"REDIS_URL": valkey.url}}
