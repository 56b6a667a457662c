"""The shop that `shop prove` tests: real service processes and databases on free ports, with their own data."""

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shop_cli.local.ports import HOST, reserved
from shop_cli.local.postgres import Postgres
from shop_cli.local.processes import Shop
from shop_cli.local.stores import Valkey
from shop_cli.local.workspace import Program, default_ports, discover_services, find, internal_name
from shop_kit.tcp_proxy import TcpProxy, tcp_proxy

Database = Literal["sqlite", "postgres"]

START_SECONDS = 300.0
_DATABASES = ("checkout", "payment", "shipping", "email")
LEASE_SECONDS = 2.0
"""How long a checkout process owns an order before another one may take it over."""
PEERS = ("cart", "product-catalog", "currency", "shipping", "payment", "email")
"""The services that checkout calls."""

LINKED = ("cart", "shipping", "payment", "email")
"""The peers of checkout that have a proxy."""

LATE_LINKS = ("payment", "shipping", "cart", "cart-internal", "email-internal")
"""The ports at which a request has an effect."""

_UNFLUSHED = {"wal_writer_delay": "10s"}
"""A server that is killed loses each commit that was not flushed before its acknowledgment.

By default PostgreSQL flushes all commits every 0.2 s, so that hardly one order in a run would show the loss.
"""

_INHERITED = ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class ShopUnderTest:
    """A running shop.

    Attributes:
        checkouts: the names of the checkout processes, which share one journal.
        payment_url: the database of payment's ledger.
        shipping_url: the database of shipping's manifest.
        hmac_key: payment's HMAC key.
        spool_url: the database of the email service's spool.
        journal_url: the database of checkout's journal.
        postgres: the server of all databases; None on SQLite.
        links: the proxies through which checkout calls its peers, by the names of their ports; empty if it calls them
            directly.
    """

    processes: Shop
    checkouts: tuple[str, ...]
    folder: Path
    payment_url: str
    shipping_url: str
    spool_url: str
    journal_url: str
    hmac_key: bytes
    valkey: Valkey
    postgres: Postgres | None
    links: Mapping[str, TcpProxy]

    @property
    def sent_mails(self) -> Path:
        """The folder to which the relay writes what it accepts."""
        return sent_mails_of(self.folder)


def sent_mails_of(folder: Path) -> Path:
    """Return the folder of the mails that the relay of a shop in this folder has accepted."""
    return folder / "sent-mails"


@asynccontextmanager
async def shop_under_test(
    folder: Path,
    database: Database,
    *,
    naive: bool = False,
    proxied: bool = False,
    smtp_url: str | None = None,
) -> AsyncIterator[ShopUnderTest]:
    """Start a shop, wait until it is ready, and stop it when the context is left.

    Args:
        folder: empty; for all data except PostgreSQL's.
        database: of payment, shipping, email and checkout.
        naive: run the naive checkout, which must fail, instead of the real one.
        proxied: let checkout call its peers through proxies.
        smtp_url: the relay of the email service; without one, letters wait in the spool.
    """
    programs = _programs(naive=naive)
    names = [program.name for program in programs]
    async with AsyncExitStack() as stack:
        port_names = default_ports(programs)
        valkey_port, *ports = stack.enter_context(reserved(len(port_names) + 1))
        valkey = await stack.enter_async_context(Valkey(folder, valkey_port))
        postgres = await _start_postgres(stack) if database == "postgres" else None
        urls, hmac_key = _database_urls(folder, postgres), secrets.token_hex(32)
        common = {"HMAC_KEY": hmac_key, "LEASE_SECONDS": str(LEASE_SECONDS)}
        ports_by_name = dict(zip(port_names, ports, strict=True))
        links = await _start_links(stack, ports_by_name) if proxied else {}
        overrides = _overrides(names, valkey.url, urls, common, links=links)
        if smtp_url is not None:
            overrides["email"]["SMTP_URL"] = smtp_url
        processes = Shop(programs, folder, ports_by_name, _environment(), overrides)
        await stack.enter_async_context(processes)
        await processes.wait_until_serving(START_SECONDS)
        checkout_names = tuple(name for name in names if name not in PEERS)
        yield ShopUnderTest(
            processes,
            checkout_names,
            folder,
            payment_url=urls["payment"],
            shipping_url=urls["shipping"],
            spool_url=urls["email"],
            journal_url=urls["checkout"],
            hmac_key=hmac_key.encode(),
            valkey=valkey,
            postgres=postgres,
            links=links,
        )


def _programs(*, naive: bool) -> list[Program]:
    services = discover_services()
    checkout = find(services, "checkout")
    if naive:
        checkout = replace(checkout, module="shop_lab.world.naive_checkout")
    copies = [replace(checkout, name=f"checkout-{number}") for number in (1, 2)]
    return [*(find(services, name) for name in PEERS), *copies]


async def _start_postgres(stack: AsyncExitStack) -> Postgres:
    """Start a server with all databases."""
    # When run as root, PostgreSQL runs as another user, who may have no access to the shop's folder.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True))
    server = await Postgres.create(Path(folder) / "postgres", settings=_UNFLUSHED)
    await stack.enter_async_context(server)
    for name in _DATABASES:
        await server.create_database(name)
    return server


def _database_urls(folder: Path, postgres: Postgres | None) -> dict[str, str]:
    if postgres is not None:
        return {name: postgres.url(name) for name in _DATABASES}
    return {name: f"sqlite:///{folder}/.shop/{name}.db" for name in _DATABASES}


async def _start_links(stack: AsyncExitStack, ports: Mapping[str, int]) -> dict[str, TcpProxy]:
    names = [name for peer in LINKED for name in (peer, internal_name(peer)) if name in ports]
    return {name: await stack.enter_async_context(tcp_proxy(f"{HOST}:{ports[name]}")) for name in names}


def _overrides(
    names: Sequence[str],
    valkey_url: str,
    urls: Mapping[str, str],
    common: Mapping[str, str],
    *,
    links: Mapping[str, TcpProxy],
) -> dict[str, dict[str, str]]:
    """Return the variables of single processes by name; `common` is for payment and every checkout."""
    addresses = {f"{name.replace('-', '_').upper()}_ADDR": link.address for name, link in links.items()}
    checkout = {"DATABASE_URL": urls["checkout"], **common, **addresses}
    return {name: checkout for name in names if name not in PEERS} | {
        "cart": {"REDIS_URL": valkey_url},
        "payment": {"DATABASE_URL": urls["payment"], **common},
        "shipping": {"DATABASE_URL": urls["shipping"]},
        "email": {"DATABASE_URL": urls["email"]},
    }


def _environment() -> dict[str, str]:
    # A developer's settings for another shop must not apply to this one.
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "LOG_LEVEL": "warning", "GRACE_SECONDS": "5"}
