"""What fault injection needs of a process: a service, a database server or a cluster of them."""

from typing import Protocol


class ControllableProcess(Protocol):
    """A process that can be killed, paused and started again at the same address."""

    async def start(self) -> None:
        """Start the process without waiting until it is ready."""

    def kill(self) -> None:
        """End the process immediately, without a graceful shutdown; `wait` returns once it has ended."""

    def pause(self) -> None:
        """Freeze the process (SIGSTOP)."""

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT)."""

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit status, 0 if it was never started."""

    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> float:
        """Wait until the process is ready; return the seconds since its start. Raise ProcessDied or NotServing."""
