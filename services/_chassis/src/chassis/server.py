"""Runs a service: start, health, reflection, drain. `python -m <name>_service` only calls `run(...)`."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import structlog
import uvloop
from google.protobuf.internal import api_implementation

from chassis import client, database, logging, otlp
from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from chassis.listener import Listener
from chassis.serving import Limiter
from chassis.settings import ServiceSettings, load, load_database_url
from chassis.telemetry import Telemetry
from chassis.volume import observe_volume

log = structlog.get_logger()

_READINESS_INTERVAL_SECONDS = 1.0
# One slow response of a store must not make a service's only pod unready; calls report a store that is down anyway.
_CHECKS_UNTIL_NOT_READY = 3

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)
ReadinessCheck = Callable[[], Awaitable[None]]


class Service:
    """A process that serves RPCs: `__main__` adds its servicers, channels and readiness checks.

    Attributes:
        port: of the public services, once started.
        internal_port: of the internal services, once started; None without any.
    """

    def __init__(self, settings: ServiceSettings, telemetry: Telemetry) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.failpoints = Failpoints(settings.failpoints)
        self.limiter = Limiter(settings.max_concurrent_rpcs)
        self._public = Listener(settings, telemetry, self.limiter)
        self._internal: Listener | None = None
        self._checks: list[ReadinessCheck] = []
        self._failed_checks = _CHECKS_UNTIL_NOT_READY - 1  # before the first success, one failure is enough
        self._stack = AsyncExitStack()

    @property
    def port(self) -> int:
        return self._public.port

    @property
    def internal_port(self) -> int | None:
        return None if self._internal is None else self._internal.port

    def add_servicer(self, register: Callable[[Any, Any], None], servicer: object) -> None:
        """Serve a servicer; `register` is its generated add_..._to_server."""
        self._public.add_servicer(register, servicer)

    def add_internal_servicer(self, register: Callable[[Any, Any], None], servicer: object) -> None:
        """Serve a servicer for our own services and operators, on a port that clients of the shop do not reach."""
        if self._internal is None:
            self._internal = Listener(self.settings, self.telemetry, self.limiter)
        self._internal.add_servicer(register, servicer)

    def add_readiness_check(self, check: ReadinessCheck) -> None:
        """Add a check that raises DomainError while the service is not ready.

        It may query the service's own store, never a peer: the outage of one service must not spread to its callers.
        """
        self._checks.append(check)

    def channel(
        self, target: str, service: str, *, timeout_seconds: float, retryable: Sequence[str] = ()
    ) -> grpc.aio.Channel:
        """Open a channel to a peer; it is closed when this service stops. See `client.channel`."""
        opened = client.channel(
            target, service, timeout_seconds=timeout_seconds, retryable=retryable, telemetry=self.telemetry
        )
        self._stack.push_async_callback(opened.close)
        return opened

    async def start(self) -> None:
        """Start to serve. Raise OSError with the address when a port is in use."""
        if self._internal is not None:
            await self._internal.start(self.settings.internal_port, "INTERNAL_PORT")
        await self._public.start(self.settings.port, "PORT")
        await self._update_readiness()

    async def watch_readiness(self) -> None:
        """Update the readiness once a second, until cancelled."""
        while True:
            await asyncio.sleep(_READINESS_INTERVAL_SECONDS)
            await self._update_readiness()

    async def drain(self) -> None:
        """Report NOT_SERVING, serve for another drain_seconds, then stop within grace_seconds.

        Stopping at once would cancel calls of clients that have not seen NOT_SERVING yet.
        """
        await self._set_readiness(ready=False)
        await asyncio.sleep(self.settings.drain_seconds)
        await asyncio.gather(*(listener.stop(self.settings.grace_seconds) for listener in self._listeners()))

    async def close(self) -> None:
        await self._stack.aclose()

    async def _update_readiness(self) -> None:
        try:
            for check in self._checks:
                await check()
        except DomainError as error:
            self._failed_checks += 1
            log.warning("not ready", reason=error.reason, failed_checks=self._failed_checks)
            if self._failed_checks >= _CHECKS_UNTIL_NOT_READY:
                await self._set_readiness(ready=False)
        else:
            self._failed_checks = 0
            await self._set_readiness(ready=True)

    async def _set_readiness(self, *, ready: bool) -> None:
        for listener in self._listeners():
            await listener.set_readiness(ready=ready)

    def _listeners(self) -> list[Listener]:
        return [self._public, *([self._internal] if self._internal else [])]


Build = Callable[[SettingsT, Service], AbstractAsyncContextManager[None]]


def run(name: str, settings_type: type[SettingsT], build: Build[SettingsT], *, migrations: Path | None = None) -> None:
    """Run a service until SIGTERM or SIGINT, then exit with status 0.

    With the argument `migrate` on the command line, migrate the database and exit instead.

    Args:
        name: name of the service, such as `product-catalog`.
        settings_type: its settings, read from the environment.
        build: a context manager that opens stores, clients and tasks and adds servicers; it exits after the drain.
        migrations: folder of the service's migrations, if it has a database.
    """
    if migrations is not None and sys.argv[1:] == ["migrate"]:
        database.migrate(load_database_url(settings_type), migrations)
        return
    settings = load(settings_type)
    if api_implementation.Type() != "upb":
        sys.exit("protobuf runs in pure Python, which takes ten times as long: install a wheel with its C extension")
    telemetry = otlp.configure(name)
    logging.configure(name, level=settings.log_level, logger=telemetry.logger)
    if migrations is not None:
        observe_volume(telemetry.meter, load_database_url(settings_type))
    problems: list[str] = []
    try:
        uvloop.run(_serve(settings, telemetry, build))
    except* OSError as group:  # a task group in `build` wraps the error
        problems = [*_messages(group)]
    finally:
        telemetry.shutdown()
    if problems:
        sys.exit("; ".join(problems))


def _messages(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for nested in error.exceptions:
            yield from _messages(nested)
    else:
        yield str(error)


async def _serve(settings: SettingsT, telemetry: Telemetry, build: Build[SettingsT]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    service = Service(settings, telemetry)
    async with serving(service, build(settings, service)):
        # Objects created at the start live until the end: scanning them would block the event loop for 40 ms each time.
        gc.freeze()
        log.info("serving", port=service.port, internal_port=service.internal_port)
        reloader = Reloader(loop, stopped) if settings.reload else None
        await stopped.wait()
        log.info("draining")
    log.info("stopped")
    if reloader is not None and reloader.changed:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same program with its changed sources


@asynccontextmanager
async def serving(service: Service, resources: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
    """Open the resources and start the service; on exit drain it, then close the resources."""
    try:
        async with resources:
            await service.start()
            watch = asyncio.create_task(service.watch_readiness(), name="readiness")
            try:
                yield
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
                await service.drain()
    finally:
        await service.close()


class Reloader:
    """Stops the service when one of its source files changes: for development, where files are synced into a pod."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
        self.changed = False
        self._loop = loop
        self._stopped = stopped
        threading.Thread(target=self._watch, name="reloader", daemon=True).start()

    def _watch(self) -> None:
        before = _modification_times()
        while _modification_times() == before:
            threading.Event().wait(0.5)
        self.changed = True
        self._loop.call_soon_threadsafe(self._stopped.set)


def _modification_times() -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in _sources()}


def _sources() -> Iterable[Path]:
    main = Path(sys.modules["__main__"].__file__ or "").parent
    chassis = Path(__file__).parent
    return [path for folder in (main, chassis) for path in folder.rglob("*.py") if path.exists()]
