"""The shop's services as processes of this machine: start, watch, kill, pause, restart, stop one or all of them.

    with reserved(len(programs)) as ports:
        async with Shop(programs, folder, dict(zip(names, ports))) as shop:
            await shop.wait_until_serving()
            shop["payment"].kill()
            await shop["payment"].restart()

Leaving the context stops everything. Should this process be killed, Linux kills the services: enter the context in a
thread that lives as long as the shop, for a service dies with the thread that started it.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from chassis.errors import FailedPrecondition, Unavailable
from shop_cli.local import health, launch
from shop_cli.local.ports import HOST, require_free
from shop_cli.local.workspace import Program, UnknownService

STOP_SECONDS = 25.0
_POLL_SECONDS = 0.02
_LAST_LINES = 3
# What a developer's shell may hold for other programs, and what differs between services.
_NOT_INHERITED = ("HOST", "PORT", "DATABASE_URL", "FAILPOINTS", "HMAC_KEY")

_ENVIRONMENT = {
    "GRPC_VERBOSITY": "ERROR",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # As in the images: see the chassis's README.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "DRAIN_SECONDS": "0",
}


class ProcessDied(FailedPrecondition):
    """A service ended while it was waited for."""


class NotServing(Unavailable):
    """A service runs but was not ready in time."""


class Process:
    """One service's process; it may end and be started again at the same address.

    Args:
        program: what to run.
        port: where it listens on loopback.
        environment: all its environment variables.
        folder: its working directory; it writes below `.shop/` there, and its log to `.shop/log/<name>.log`.
    """

    def __init__(self, program: Program, port: int, environment: Mapping[str, str], folder: Path) -> None:
        self.program = program
        self.name = program.name
        self.port = port
        self.address = f"{HOST}:{port}"
        self.environment = {**environment, "HOST": HOST, "PORT": str(port)}
        self.log_path = folder / ".shop" / "log" / f"{program.name}.log"
        self.starts = 0
        self.started_at = 0.0
        self.paused = False
        self._folder = folder
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process's id, that of the last one when it ended."""
        return self._child.pid if self._child else None

    @property
    def exit_code(self) -> int | None:
        """The status that it ended with, minus a signal's number; None while it runs or before it did."""
        return self._child.returncode if self._child else None

    @property
    def running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._child is not None and self._child.returncode is None

    async def start(self, **variables: str) -> None:
        """Start it, with more environment variables for this time; raises PortInUse. Does not wait until it serves."""
        require_free(self.port, self.name)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid())),
                *(sys.executable, "-P", "-m", self.program.module),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**self.environment, **variables},
                start_new_session=True,  # Ctrl-C in the terminal is this process's to handle
            )
        self.paused = False
        self.starts += 1
        self.started_at = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and whatever it started; none when it ended."""
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):  # it ended just now
                os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """End it at once, as `kill -9` does; `wait` tells when it is gone."""
        self.send(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        self.send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.send(signal.SIGCONT)
        self.paused = False

    async def wait(self) -> int:
        """Wait until it ended; returns its exit status, 0 when it was never started."""
        return await self._child.wait() if self._child else 0

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Let it drain (SIGTERM), kill it when that takes too long; returns its exit status."""
        self.send(signal.SIGTERM)
        self.resume()
        try:
            return await asyncio.wait_for(self.wait(), timeout_seconds)
        except TimeoutError:
            self.kill()
            return await self.wait()

    async def restart(self, timeout_seconds: float = STOP_SECONDS, **variables: str) -> None:
        """Stop it if it runs, start it, wait until it serves."""
        await self.stop()
        await self.start(**variables)
        await self.wait_until_serving(timeout_seconds)

    async def is_serving(self) -> bool:
        """Whether it says that it is ready."""
        return self.running and not self.paused and await health.is_serving(self.program, self.address)

    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> float:
        """Wait until it is ready; returns the seconds since its start. Raises ProcessDied or NotServing."""
        give_up_at = time.monotonic() + timeout_seconds
        while not await self.is_serving():
            if not self.running:
                raise ProcessDied(f"{self.name} ended with status {self.exit_code}: {self.last_lines()}")
            if time.monotonic() > give_up_at:
                raise NotServing(f"{self.name} is not ready after {timeout_seconds:g} s: {self.last_lines()}")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - self.started_at

    def last_lines(self) -> str:
        """The end of its log."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-_LAST_LINES:])


class Shop:
    """Processes that know each other's addresses. A context: entering starts them all, leaving stops them all.

    Args:
        programs: what to run.
        folder: where they keep their data, below `.shop/`.
        ports: by the programs' names.
        environment: for all of them; this process's own unless given.
        own: for one of them, by its name.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        folder: Path,
        ports: Mapping[str, int],
        environment: Mapping[str, str] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        common = {
            **inherited(os.environ if environment is None else environment),
            **{program.address_variable: f"{HOST}:{ports[program.name]}" for program in programs},
        }
        self._processes = {
            program.name: Process(program, ports[program.name], {**common, **(own or {}).get(program.name, {})}, folder)
            for program in programs
        }

    def __iter__(self) -> Iterator[Process]:
        return iter(self._processes.values())

    def __getitem__(self, name: str) -> Process:
        if name not in self._processes:
            raise UnknownService(f"{name} is not running here")
        return self._processes[name]

    async def __aenter__(self) -> Self:
        for process in self:  # all or none
            require_free(process.port, process.name)
        try:
            for process in self:
                await process.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> None:
        """Wait until all are ready; raises ProcessDied or NotServing for the first that isn't."""
        await asyncio.gather(*(process.wait_until_serving(timeout_seconds) for process in self))

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> dict[str, int]:
        """Let all of them drain at once; returns their exit statuses. Cancelling it kills what is left."""
        try:
            statuses = await asyncio.gather(*(process.stop(timeout_seconds) for process in self))
        finally:
            for process in self:
                process.kill()
        return dict(zip(self._processes, statuses, strict=True))


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What services take over of an environment, and what suits this machine unless it says otherwise."""
    kept = {name: value for name, value in environment.items() if name not in _NOT_INHERITED}
    return {**_ENVIRONMENT, **kept}
