"""The shop that is to be proved: its real processes and stores on free ports, with data of their own."""

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
from shop_cli.local.workspace import Program, discover_services, find
from shop_cli.prove.stores import Postgres, Valkey

Database = Literal["sqlite", "postgres"]

START_SECONDS = 60.0
LEASE_SECONDS = 2.0
_NEEDED = ("cart", "product-catalog", "currency", "shipping", "payment", "email")
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class Stage:
    """A running shop.

    Attributes:
        checkouts: the names of its checkout processes, which share one journal.
        payment_url: the database of payment's ledger.
        hmac_key: of payment.
        postgres: None on SQLite.
    """

    shop: Shop
    checkouts: tuple[str, ...]
    folder: Path
    payment_url: str
    hmac_key: bytes
    valkey: Valkey
    postgres: Postgres | None

    @property
    def manifest(self) -> Path:
        """The carrier's ledger."""
        return self.folder / ".shop" / "shipments.jsonl"

    @property
    def outbox(self) -> Path:
        """Where confirmations are written to."""
        return self.folder / ".shop" / "outbox"


@asynccontextmanager
async def staged(
    folder: Path,
    database: Database,
    *,
    naive: bool = False,
    checkouts: int = 2,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[Stage]:
    """Start a shop and wait until it serves.

    Args:
        folder: empty; all data but PostgreSQL's go there.
        database: of payment and checkout.
        naive: in place of checkout the control that must fail.
        checkouts: how many processes of it.
        lease_seconds: how long a checkout has an order for itself.
    """
    programs = _programs(checkouts, naive=naive)
    names = [program.name for program in programs]
    async with AsyncExitStack() as stack:
        valkey_port, *ports = stack.enter_context(reserved(len(programs) + 1))
        valkey = await stack.enter_async_context(Valkey(folder, valkey_port))
        postgres = await _postgres(stack) if database == "postgres" else None
        urls, hmac_key = _database_urls(folder, postgres), secrets.token_hex(32)
        own = _variables(folder, names, valkey.url, urls, {"HMAC_KEY": hmac_key, "LEASE_SECONDS": str(lease_seconds)})
        shop = Shop(programs, folder, dict(zip(names, ports, strict=True)), _everybodys(), own)
        await stack.enter_async_context(shop)
        await shop.wait_until_serving(START_SECONDS)
        made = tuple(name for name in names if name not in _NEEDED)
        yield Stage(shop, made, folder, urls["payment"], hmac_key.encode(), valkey, postgres)


def _programs(checkouts: int, *, naive: bool) -> list[Program]:
    services = discover_services()
    checkout = find(services, "checkout")
    if naive:
        checkout = replace(checkout, module="shop_cli.prove.naive")
    copies = [replace(checkout, name=f"checkout-{number}") for number in range(1, checkouts + 1)]
    return [*(find(services, name) for name in _NEEDED), *copies]


async def _postgres(stack: AsyncExitStack) -> Postgres:
    # Not in the stage's folder: as root it runs as another user, who may not get there.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True))
    server = await stack.enter_async_context(await Postgres.created(Path(folder) / "postgres"))
    for name in ("payment", "checkout"):
        await server.create_database(name)
    return server


def _database_urls(folder: Path, postgres: Postgres | None) -> dict[str, str]:
    if postgres is not None:
        return {name: postgres.url(name) for name in ("payment", "checkout")}
    return {name: f"sqlite:///{folder}/.shop/{name}.db" for name in ("payment", "checkout")}


def _variables(
    folder: Path, names: Sequence[str], valkey_url: str, urls: Mapping[str, str], settled: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Each process's own environment; `settled` is for payment and checkout."""
    own = {name: {"DATABASE_URL": urls["checkout"], **settled} for name in names if name not in _NEEDED}
    return own | {
        "cart": {"REDIS_URL": valkey_url},
        "payment": {"DATABASE_URL": urls["payment"], **settled},
        "shipping": {"SHIPMENTS_FILE": str(folder / ".shop" / "shipments.jsonl")},
        "email": {"OUTBOX_DIR": str(folder / ".shop" / "outbox")},
    }


def _everybodys() -> dict[str, str]:
    """Of this process's environment: nothing that a developer has set for other shops takes part."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "LOG_LEVEL": "warning", "GRACE_SECONDS": "5"}
