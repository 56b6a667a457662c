"""The shop that is to be proved: its real processes and stores on free ports, with data of their own."""

import os
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shop_cli.ports import reserved
from shop_cli.processes import Shop
from shop_cli.prove.stores import Postgres, Valkey
from shop_cli.workspace import Program, discover_services, find

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
    own: Mapping[str, Mapping[str, str]] | None = None,
) -> AsyncIterator[Stage]:
    """Start a shop and wait until it serves.

    Args:
        folder: empty; all data go there.
        database: of payment and checkout.
        naive: in place of checkout the control that must fail.
        checkouts: how many processes of it.
        own: more environment variables, by the service's name.
    """
    programs = _programs(checkouts, naive=naive)
    hmac_key = secrets.token_hex(32)
    with ExitStack() as held:
        valkey_port, *ports = held.enter_context(reserved(len(programs) + 1))
        async with AsyncExitStack() as stack:
            valkey = await stack.enter_async_context(Valkey(folder, valkey_port))
            postgres = await _postgres(stack, folder) if database == "postgres" else None
            urls = _database_urls(folder, postgres)
            stage_environment = _environment(folder, valkey.url, urls, hmac_key, programs)
            by_name = {program.name: port for program, port in zip(programs, ports, strict=True)}
            merged = {name: {**stage_environment[name], **(own or {}).get(name, {})} for name in by_name}
            shop = await stack.enter_async_context(Shop(programs, folder, by_name, _kept(), merged))
            await shop.wait_until_serving(START_SECONDS)
            names = tuple(program.name for program in programs if program.name.startswith("checkout"))
            yield Stage(shop, names, folder, urls["payment"], hmac_key.encode(), valkey, postgres)


def _programs(checkouts: int, *, naive: bool) -> list[Program]:
    services = discover_services()
    checkout = find(services, "checkout")
    if naive:
        checkout = replace(checkout, module="shop_cli.prove.naive")
    copies = [replace(checkout, name=f"checkout-{number}") for number in range(1, checkouts + 1)]
    return [*(find(services, name) for name in _NEEDED), *copies]


async def _postgres(stack: AsyncExitStack, folder: Path) -> Postgres:
    server = await stack.enter_async_context(await Postgres.created(folder / "postgres"))
    for name in ("payment", "checkout"):
        await server.create_database(name)
    return server


def _database_urls(folder: Path, postgres: Postgres | None) -> dict[str, str]:
    if postgres is not None:
        return {name: postgres.url(name) for name in ("payment", "checkout")}
    return {name: f"sqlite:///{folder}/.shop/{name}.db" for name in ("payment", "checkout")}


def _environment(
    folder: Path, valkey_url: str, urls: Mapping[str, str], hmac_key: str, programs: Iterable[Program]
) -> dict[str, dict[str, str]]:
    own: dict[str, dict[str, str]] = {program.name: {} for program in programs}
    own["cart"] = {"REDIS_URL": valkey_url}
    own["payment"] = {"DATABASE_URL": urls["payment"], "HMAC_KEY": hmac_key}
    own["shipping"] = {"SHIPMENTS_FILE": str(folder / ".shop" / "shipments.jsonl")}
    own["email"] = {"OUTBOX_DIR": str(folder / ".shop" / "outbox")}
    for name in own:
        if name.startswith("checkout"):
            own[name] = {"DATABASE_URL": urls["checkout"], "HMAC_KEY": hmac_key, "LEASE_SECONDS": str(LEASE_SECONDS)}
    return own


def _kept() -> dict[str, str]:
    """Of this process's environment: nothing that a developer has set for other shops takes part."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "LOG_LEVEL": "warning", "GRACE_SECONDS": "5"}
