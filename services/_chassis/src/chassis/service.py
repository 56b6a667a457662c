"""What every service has, whatever it serves: telemetry, channels to its peers and readiness checks."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from chassis.telemetry.instruments import Telemetry

if TYPE_CHECKING:
    import grpc

ReadinessCheck = Callable[[], Awaitable[None]]


class BaseService:
    """The base class of the services that `chassis.rpc.server` and `chassis.http.server` run."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self._checks: list[ReadinessCheck] = []
        self._stack = AsyncExitStack()

    def add_readiness_check(self, check: ReadinessCheck) -> None:
        """Add a check that raises DomainError while the service is not ready.

        It may query the service's own store, never a peer: the outage of one service must not spread to its callers.
        """
        self._checks.append(check)

    def channel(
        self, target: str, service: str, *, timeout_seconds: float, retryable: Sequence[str] = ()
    ) -> "grpc.aio.Channel":
        """Open a channel to a peer; it is closed when this service stops. See `client.channel`."""
        from chassis.rpc import client  # noqa: PLC0415 - imports gRPC, which an HTTP service without peers does not need

        opened = client.channel(
            target, service, timeout_seconds=timeout_seconds, retryable=retryable, telemetry=self.telemetry
        )
        self._stack.push_async_callback(opened.close)
        return opened

    async def close(self) -> None:
        await self._stack.aclose()
