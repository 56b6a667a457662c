"""PostgreSQL and Valkey for a local shop, as in production, with their data in the shop's folder."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chassis.errors import FailedPrecondition
from shop_cli.local.ports import reserved
from shop_cli.local.postgres import Postgres
from shop_cli.local.stores import Store, Valkey

# The services that the chart gives a PostgreSQL database.
DATABASES = ("checkout", "payment", "shipping", "email", "employee-api")
# The path of a Unix socket has at most 107 bytes, on some systems 103, of which `/.s.PGSQL.5432` takes 14.
_MAX_PATH = 89


class PathTooLong(FailedPrecondition):
    """The folder's path is too long for a Unix socket in it."""


@asynccontextmanager
async def data_stores(folder: Path) -> AsyncIterator[tuple[Sequence[Store], dict[str, dict[str, str]]]]:
    """Start PostgreSQL and Valkey with their data below `.shop/` of a folder; stop them on leaving.

    Yield them, and the variables of each service that uses one of them. Raise NotServing, ProcessDied or PathTooLong.
    """
    data = folder / ".shop" / "postgres"
    if len(os.fsencode(data)) > _MAX_PATH:
        raise PathTooLong(f"{data} is too long for a Unix socket: choose a shorter `--folder`")
    valkey_folder = folder / ".shop" / "valkey"
    valkey_folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        (port,) = stack.enter_context(reserved(1))
        postgres, valkey = await Postgres.open_or_create(data), Valkey(valkey_folder, port)
        for store in (postgres, valkey):
            store.log_path = folder / ".shop" / "log" / f"{store.name}.log"
            await stack.enter_async_context(store)
        existing = {name for (name,) in await postgres.execute("SELECT datname FROM pg_database")}
        for name in DATABASES:
            if name not in existing:
                await postgres.create_database(name)
        databases = {name: {"DATABASE_URL": postgres.url(name)} for name in DATABASES}
        yield (postgres, valkey), {**databases, "cart": {"REDIS_URL": valkey.url}}
