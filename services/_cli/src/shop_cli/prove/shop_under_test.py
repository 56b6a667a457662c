"""The shop that `shop prove` tests: real service processes and databases on free ports, with their own data."""

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import Program, default_ports, discover_services, find
from shop_cli.prove.stores import Postgres, Valkey

Database = Literal["sqlite", "postgres"]

START_SECONDS = 60.0
LEASE_SECONDS = 2.0
_DEPENDENCIES = ("cart", "product-catalog", "currency", "shipping", "payment", "email")
_DATABASES = ("payment", "shipping", "checkout")
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class ShopUnderTest:
    """A running shop.

    Attributes:
        checkouts: the names of the checkout processes, which share one journal.
        payment_url: the database of payment's ledger.
        shipping_url: the database of shipping's manifest.
        hmac_key: payment's HMAC key.
        postgres: None on SQLite.
    """

    processes: Shop
    checkouts: tuple[str, ...]
    folder: Path
    payment_url: str
    shipping_url: str
    hmac_key: bytes
    valkey: Valkey
    postgres: Postgres | None

    @property
    def outbox(self) -> Path:
        """The folder of sent confirmations."""
        return self.folder / ".shop" / "outbox"


@asynccontextmanager
async def shop_under_test(
    folder: Path,
    database: Database,
    *,
    naive: bool = False,
    checkouts: int = 2,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[ShopUnderTest]:
    """Start a shop, wait until it is ready, and stop it when the context is left.

    Args:
        folder: empty; for all data except PostgreSQL's.
        database: of payment, shipping and checkout.
        naive: run the naive checkout, which must fail, instead of the real one.
        checkouts: the number of checkout processes.
        lease_seconds: how long a checkout process owns an order before another one may take it over.
    """
    programs = _programs(checkouts, naive=naive)
    names = [program.name for program in programs]
    async with AsyncExitStack() as stack:
        port_names = default_ports(programs)
        valkey_port, *ports = stack.enter_context(reserved(len(port_names) + 1))
        valkey = await stack.enter_async_context(Valkey(folder, valkey_port))
        postgres = await _start_postgres(stack) if database == "postgres" else None
        urls, hmac_key = _database_urls(folder, postgres), secrets.token_hex(32)
        common = {"HMAC_KEY": hmac_key, "LEASE_SECONDS": str(lease_seconds)}
        overrides = _overrides(folder, names, valkey.url, urls, common)
        processes = Shop(programs, folder, dict(zip(port_names, ports, strict=True)), _environment(), overrides)
        await stack.enter_async_context(processes)
        await processes.wait_until_serving(START_SECONDS)
        checkout_names = tuple(name for name in names if name not in _DEPENDENCIES)
        yield ShopUnderTest(
            processes,
            checkout_names,
            folder,
            payment_url=urls["payment"],
            shipping_url=urls["shipping"],
            hmac_key=hmac_key.encode(),
            valkey=valkey,
            postgres=postgres,
        )


def _programs(checkouts: int, *, naive: bool) -> list[Program]:
    services = discover_services()
    checkout = find(services, "checkout")
    if naive:
        checkout = replace(checkout, module="shop_cli.prove.naive_checkout")
    copies = [replace(checkout, name=f"checkout-{number}") for number in range(1, checkouts + 1)]
    return [*(find(services, name) for name in _DEPENDENCIES), *copies]


async def _start_postgres(stack: AsyncExitStack) -> Postgres:
    # When run as root, PostgreSQL runs as another user, who may have no access to the shop's folder.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True))
    server = await stack.enter_async_context(await Postgres.create(Path(folder) / "postgres"))
    for name in _DATABASES:
        await server.create_database(name)
    return server


def _database_urls(folder: Path, postgres: Postgres | None) -> dict[str, str]:
    if postgres is not None:
        return {name: postgres.url(name) for name in _DATABASES}
    return {name: f"sqlite:///{folder}/.shop/{name}.db" for name in _DATABASES}


def _overrides(
    folder: Path, names: Sequence[str], valkey_url: str, urls: Mapping[str, str], common: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the variables of single processes by name; `common` is for payment and every checkout."""
    checkouts = {name: {"DATABASE_URL": urls["checkout"], **common} for name in names if name not in _DEPENDENCIES}
    return checkouts | {
        "cart": {"REDIS_URL": valkey_url},
        "payment": {"DATABASE_URL": urls["payment"], **common},
        "shipping": {"DATABASE_URL": urls["shipping"]},
        "email": {"OUTBOX_DIR": str(folder / ".shop" / "outbox")},
    }


def _environment() -> dict[str, str]:
    # A developer's settings for another shop must not apply to this one.
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "LOG_LEVEL": "warning", "GRACE_SECONDS": "5"}
