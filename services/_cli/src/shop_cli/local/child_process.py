import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from chassis.errors import DeadlineExceeded, FailedPrecondition, Unavailable

# A service's readiness check fails only if its database does not answer.
NO_DATABASE = "not ready: its database does not answer"
START_SECONDS = 300.0  # starting can take minutes on a busy machine
_STOP_SECONDS = 25.0  # a process that takes longer to stop is killed
_POLL_SECONDS = 0.02
_LAST_LINES = 3


class ProcessDied(FailedPrecondition):
    """The process ended before it became ready."""


class NotServing(Unavailable):
    """The process is running but did not become ready in time."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder, then delete it. If a process fails or times out, keep it and name it in the error."""
    folder, is_kept = Path(tempfile.mkdtemp(prefix=prefix)), False
    try:
        yield folder
    except (ProcessDied, Unavailable, DeadlineExceeded) as error:
        is_kept = True
        advice = "" if isinstance(error, ProcessDied) else "this machine may be too slow: close other programs, retry; "
        error.message += f"; {advice}logs are in {folder / '.shop' / 'log'}"
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


class ChildProcess:
    """A child process that ends when this process does. Subclasses define how it starts and when it is ready.

    Entering the context starts the child and waits until it is ready; leaving the context stops it.
    """

    address = ""  # the address to display, such as `host:port`
    stop_signal = signal.SIGTERM

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.state = "starting"  # updated by `supervision.observe`
        self.starts = 0
        self.started_at = 0.0
        self.paused = False
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        await self.wait_until_serving()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def pid(self) -> int | None:
        """The id of the current or last process; None before the first start."""
        return self._child.pid if self._child else None

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative if a signal ended the process; None while it runs and before the first start."""
        return self._child.returncode if self._child else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    async def start(self) -> None:
        """Start the process without waiting until it is ready."""
        raise NotImplementedError

    async def is_serving(self) -> bool | None:
        """Return whether the process reports that it is ready; None if it does not respond."""
        raise NotImplementedError

    def require_free_ports(self) -> None:
        """Raise PortInUse if another program listens on one of this process's ports."""

    async def spawn(
        self, *command: str, folder: Path, environment: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        """Start the child by running a command in a folder. By default, use this process's environment and user."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        # On Linux, make the kernel kill the child when this process ends, even if this process crashes.
        bound = ["setpriv", "--pdeathsig=KILL"] if sys.platform == "linux" else []
        if user is not None:
            bound += [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        with self.log_path.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *(*bound, *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,  # so that Ctrl-C in the terminal doesn't reach the child
            )
        self.paused = False
        self.starts += 1
        self.started_at = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; do nothing if it has ended."""
        if self._child is not None and self.running:
            with suppress(ProcessLookupError):  # raised if the process has just ended
                os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """End the process without a graceful shutdown. Use `wait` to wait until it has ended."""
        self.send(signal.SIGKILL)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        self.send(signal.SIGCONT)
        self.paused = False

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit status; 0 if it was never started."""
        return await self._child.wait() if self._child else 0

    async def stop(self) -> int:
        """Stop the process gracefully, or kill it after a timeout. Return its exit status."""
        self.send(self.stop_signal)
        self.resume()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    async def wait_until_serving(self, timeout_seconds: float = START_SECONDS) -> float:
        """Wait until the process is ready; return the seconds it took. Raise ProcessDied, or NotServing on timeout."""
        deadline = time.monotonic() + timeout_seconds
        while not await self.is_serving():
            if not self.running:
                raise ProcessDied(f"{self.name} ended with status {self.exit_code}: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise NotServing(f"{self.name} is not ready after {timeout_seconds:g} s: {self.last_lines()}")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - self.started_at

    def last_lines(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-_LAST_LINES:] or ["the log is empty"])
