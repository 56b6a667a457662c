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
from shop_kit.databases import execute
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.tcp_proxy import TcpProxy, tcp_proxy

Database = Literal["sqlite", "postgres"]

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

_SKEWED_CLOCK = """
    CREATE SCHEMA skewed;
    CREATE TABLE skewed.clock AS SELECT interval '0' AS ahead;
    CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM skewed.clock';
    ALTER DATABASE {} SET search_path = public, skewed, pg_catalog
"""
"""Gives a database of PostgreSQL a clock that a fault can set."""

_INHERITED = ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class ShopUnderTest:
    """A running shop.

    Attributes:
        checkouts: the names of the checkout processes, which share one journal.
        urls: of the databases of checkout, payment, shipping and email.
        hmac_key: payment's HMAC key.
        inbox: of the relay to which the email service sends.
        postgres: the server of all databases; None on SQLite.
        links: the proxies through which checkout calls its peers, by the names of their ports.
    """

    processes: Shop
    checkouts: tuple[str, ...]
    urls: Mapping[str, str]
    hmac_key: bytes
    inbox: Inbox
    valkey: Valkey
    postgres: Postgres | None
    links: Mapping[str, TcpProxy]


@asynccontextmanager
async def shop_under_test(folder: Path, database: Database, *, naive: bool = False) -> AsyncIterator[ShopUnderTest]:
    """Start a shop, wait until it is ready, and stop it when the context is left.

    Args:
        folder: empty; for all data except PostgreSQL's.
        database: of payment, shipping, email and checkout.
        naive: run the naive checkout, which must fail, instead of the real one.
    """
    programs = _programs(naive=naive)
    inbox = Inbox()
    async with AsyncExitStack() as stack:
        port_names = default_ports(programs)
        ports = stack.enter_context(reserved(len(port_names)))
        valkey = await stack.enter_async_context(Valkey(folder))
        postgres = await _start_postgres(stack) if database == "postgres" else None
        smtp_port = await stack.enter_async_context(relay(inbox))
        urls = {name: postgres.url(name) if postgres else f"sqlite:///{folder}/.shop/{name}.db" for name in _DATABASES}
        hmac_key = secrets.token_hex(32)
        ports_by_name = dict(zip(port_names, ports, strict=True))
        names = [name for peer in LINKED for name in (peer, internal_name(peer))]
        links = {name: await stack.enter_async_context(tcp_proxy(f"{HOST}:{ports_by_name[name]}")) for name in names}
        checkouts = tuple(program.name for program in programs if program.name not in PEERS)
        overrides = _overrides(checkouts, urls, hmac_key, links)
        overrides["cart"] = {"REDIS_URL": valkey.url}
        overrides["email"]["SMTP_URL"] = f"smtp://{HOST}:{smtp_port}"
        processes = Shop(programs, folder, ports_by_name, _environment(), overrides)
        await stack.enter_async_context(processes)
        await processes.wait_until_serving()
        yield ShopUnderTest(processes, checkouts, urls, hmac_key.encode(), inbox, valkey, postgres, links)


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
    server = await stack.enter_async_context(Postgres(Path(folder) / "postgres", settings=_UNFLUSHED))
    for name in _DATABASES:
        await server.execute(f'CREATE DATABASE "{name}"')
        execute(server.url(name), _SKEWED_CLOCK.format(name))
    return server


def _overrides(
    checkouts: Sequence[str], urls: Mapping[str, str], hmac_key: str, links: Mapping[str, TcpProxy]
) -> dict[str, dict[str, str]]:
    """Return the variables of single processes by name."""
    addresses = {f"{name.replace('-', '_').upper()}_ADDR": link.address for name, link in links.items()}
    common = {"HMAC_KEY": hmac_key, "LEASE_SECONDS": str(LEASE_SECONDS)}
    overrides = {name: {"DATABASE_URL": url} for name, url in urls.items()}
    checkout = {**overrides.pop("checkout"), **common, **addresses}
    overrides["payment"] |= common
    return overrides | dict.fromkeys(checkouts, checkout)


def _environment() -> dict[str, str]:
    # A developer's settings for another shop must not apply to this one.
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "LOG_LEVEL": "warning", "GRACE_SECONDS": "5"}
