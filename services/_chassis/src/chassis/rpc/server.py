"""Starts a gRPC service, reports its readiness, and drains it. `python -m <name>_service` only calls `run(...)`."""

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.internal import api_implementation

from chassis.errors import DomainError
from chassis.process import ReadinessCheck, run_process
from chassis.rpc import client
from chassis.rpc.failpoints import FailpointControl
from chassis.rpc.limits import Limiter
from chassis.rpc.listener import Listener
from chassis.rpc.status import recorded_reason
from chassis.settings import ServiceSettings
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_internal import failpoints_pb2_grpc

log = structlog.get_logger()

_READINESS_INTERVAL_SECONDS = 1.0
# One slow store response must not make a service's only pod unready. When a store is down, it doesn't matter that
# readiness lags a little, because calls fail anyway.
_CHECKS_UNTIL_NOT_READY = 3
_TRIM_SECONDS = 5.0

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)
Register = Callable[[Any, Any], None]


class Service:
    """A process that serves RPCs: `__main__` adds its servicers, channels and readiness checks.

    Readiness checks may query the service's own store, but never a peer; see `chassis.process.ReadinessCheck`.
    `start` sets the ports. `internal_port` stays None without internal services, and `health_port` without HEALTH_PORT.
    """

    def __init__(self, settings: ServiceSettings, telemetry: Telemetry) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.failpoints = settings.failpoints
        self.failpoints.changeable = settings.lab
        self._public = Listener("public", settings, telemetry)
        self._internal: Listener | None = None
        self._listeners = [self._public]
        # Observe all limiters here, because OpenTelemetry keeps only a metric's first callback.
        telemetry.observe(semconv.ACTIVE_REQUESTS, lambda: [(at.in_flight, at.attributes) for at in self._limiters()])
        telemetry.observe(semconv.REQUEST_LIMIT, lambda: [(at.limit, at.attributes) for at in self._limiters()])
        self.port = 0
        self.internal_port: int | None = None
        self.health_port: int | None = None
        self.channels = AsyncExitStack()
        self.readiness_checks: list[ReadinessCheck] = []
        self._failed_checks = _CHECKS_UNTIL_NOT_READY - 1  # initially, a single failure makes the service unready

    def add_servicer(self, register: Register, servicer: object) -> None:
        """Serve `servicer` on the public port. `register` is the servicer's generated `add_..._to_server` function."""
        register(servicer, self._public.registrar)

    def add_internal_servicer(self, register: Register, servicer: object) -> None:
        """Serve `servicer` on the internal port, for our own services and operators. Customers can't reach it."""
        register(servicer, self._internal_listener().registrar)

    def channel(self, target: str, service: str, **options: Any) -> grpc.aio.Channel:
        """Open a channel to a peer, passing `options` to `client.channel`. It is closed when this service stops."""
        opened = client.channel_of(self.settings, self.telemetry, target, service, **options)
        self.channels.push_async_callback(opened.close)
        return opened

    async def start(self) -> None:
        """Start serving. If a port is in use, raise OSError with the address."""
        if self.settings.lab:
            # Don't observe this servicer: traces and metrics must not give away when a fault was injected.
            unobserved: Any = replace(self._internal_listener().registrar, telemetry=Telemetry())
            failpoints_pb2_grpc.add_FailpointsServicer_to_server(FailpointControl(self.failpoints), unobserved)
        if self._internal is not None:
            self.internal_port = await self._listen(self._internal, self.settings.internal_port, "INTERNAL_PORT")
        self.port = await self._listen(self._public, self.settings.port, "PORT")
        if self.settings.health_port is not None:
            probed = Listener("health", self.settings, self.telemetry, health=self._public.health)
            self.health_port = await self._listen(probed, self.settings.health_port, "HEALTH_PORT")
        # Check readiness now, not a second later: a pod gets calls only once it is ready.
        await self._update_readiness()

    def _internal_listener(self) -> Listener:
        if self._internal is None:
            self._internal = Listener("internal", self.settings, self.telemetry)
            self._listeners.append(self._internal)
        return self._internal

    async def _listen(self, listener: Listener, port: int, setting: str) -> int:
        bound = await listener.start(port, setting)
        # If opening the next port fails, this callback stops this port. It also stops HEALTH_PORT after the drain.
        self.channels.push_async_callback(listener.stop, 0)
        return bound

    async def watch_readiness(self) -> None:
        """Update readiness every second until cancelled. A service without checks is always ready."""
        while self.readiness_checks:
            await asyncio.sleep(_READINESS_INTERVAL_SECONDS)
            await self._update_readiness()

    async def drain(self) -> None:
        """Report NOT_SERVING, keep serving for `drain_seconds`, then stop within `grace_seconds`.

        Stopping at once would cancel calls from clients that have not seen NOT_SERVING yet.
        """
        self._set_readiness(ready=False)
        await asyncio.sleep(self.settings.drain_seconds)
        await asyncio.gather(*(listener.stop(self.settings.grace_seconds) for listener in self._listeners))

    def _limiters(self) -> list[Limiter]:
        return [listener.limiter for listener in self._listeners]

    async def _update_readiness(self) -> None:
        try:
            for check in self.readiness_checks:
                await check()
        except Exception as error:
            self._failed_checks += 1
            unexpected = not isinstance(error, DomainError)
            log.warning(
                "not ready", reason=recorded_reason(error), failed_checks=self._failed_checks, exc_info=unexpected
            )
        else:
            self._failed_checks = 0
        self._set_readiness(ready=self._failed_checks < _CHECKS_UNTIL_NOT_READY)

    def _set_readiness(self, *, ready: bool) -> None:
        for listener in self._listeners:
            listener.set_readiness(ready=ready)


Ports = Mapping[str, int | None]
Build = Callable[[SettingsT, Service], AbstractAsyncContextManager[None]]


def run(name: str, settings_type: type[SettingsT], build: Build[SettingsT], *, migrations: Path | None = None) -> None:
    """Run a service until SIGTERM or SIGINT, then exit with status 0.

    `build` opens stores and clients, starts tasks, and adds servicers; its context exits after the drain.
    """
    if api_implementation.Type() != "upb":
        sys.exit("protobuf runs in pure Python, ten times slower: install a wheel with its C extension")

    def start(settings: SettingsT, telemetry: Telemetry) -> AbstractAsyncContextManager[Ports]:
        service = Service(settings, telemetry)
        return serving(service, build(settings, service))

    run_process(name, settings_type, start, migrations=migrations)


@asynccontextmanager
async def serving(service: Service, resources: AbstractAsyncContextManager[None]) -> AsyncIterator[Ports]:
    """Open the resources, start the service and yield its ports. On exit, drain it, then close the resources."""
    # Calls in flight need the resources and channels until the drain ends.
    async with service.channels, resources:
        await service.start()
        watch = asyncio.gather(service.watch_readiness(), _return_memory())
        try:
            yield {"port": service.port, "internal_port": service.internal_port, "health_port": service.health_port}
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await service.drain()


async def _return_memory() -> None:
    """Return freed memory to the system every five seconds until cancelled."""
    # After a flood of requests, glibc by itself returns only the top of its heap, so the rest would stay resident.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(_TRIM_SECONDS)
        trim(0)
