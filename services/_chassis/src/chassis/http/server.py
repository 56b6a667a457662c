"""Runs an HTTP service: start, probes, drain. `python -m <name>_service` only calls `run(...)`.

An HTTP service has the settings, the telemetry and the life of a gRPC service; see `chassis.rpc.server`.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import structlog
from starlette.types import ASGIApp

from chassis.errors import DomainError
from chassis.http.asgi_server import AsgiServer
from chassis.http.protocol import ConnectionLimits
from chassis.http.serving import ObservedApplication, Probes
from chassis.http.trusted_proxies import ForwardedClients, Network, parse_networks
from chassis.process import run_process, serve_until_stopped
from chassis.service import BaseService
from chassis.settings import Parse, Port, PositiveFloat, PositiveInt, ServerSettings
from chassis.sql.database import CONNECT_TIMEOUT_SECONDS
from chassis.telemetry.instruments import Telemetry

log = structlog.get_logger()

_BACKLOG = 2048
# Longer than load balancers keep idle connections, or they would send requests to connections that are closing.
_KEEP_ALIVE_SECONDS = 75
_READINESS_TIMEOUT_SECONDS = 2.0
_OTHER_FILES = 256


class HttpServiceSettings(ServerSettings):
    """Settings of every HTTP service, read from the environment."""

    host: str = "0.0.0.0"
    port: Port = 8080
    header_timeout_seconds: PositiveFloat = 10
    body_timeout_seconds: PositiveFloat = 30
    max_connections: PositiveInt = 1000
    trusted_proxies: Annotated[tuple[Network, ...], Parse(parse_networks)] = ()


HttpSettingsT = TypeVar("HttpSettingsT", bound=HttpServiceSettings)


class HttpService(BaseService):
    """A process that serves an ASGI application: `__main__` opens its channels and adds readiness checks."""

    def __init__(self, settings: HttpServiceSettings, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self.settings = settings
        self._unobserved: list[str] = []
        self._draining = False

    def add_unobserved_path(self, prefix: str) -> None:
        """Record no span, duration or log line of requests whose path begins so, such as those of pictures."""
        self._unobserved.append(prefix)

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the application as it is served: observed, and with `/healthz` and `/readyz`."""
        probed = Probes(ObservedApplication(app, self.telemetry, self._unobserved), self.is_ready)
        return ForwardedClients(probed, self.settings.trusted_proxies)

    async def is_ready(self) -> bool:
        """Return whether the service does not drain and every readiness check succeeds within two seconds."""
        if self._draining:
            return False
        try:
            async with asyncio.timeout(_READINESS_TIMEOUT_SECONDS):
                for check in self._checks:
                    await check()
        except (DomainError, TimeoutError) as error:
            log.warning("not ready", reason=error.reason if isinstance(error, DomainError) else "TIMEOUT")
            return False
        return True

    def begin_drain(self) -> None:
        """Report not ready from now on."""
        self._draining = True


Build = Callable[[HttpSettingsT, HttpService], AbstractAsyncContextManager[ASGIApp]]


def run(
    name: str,
    settings_type: type[HttpSettingsT],
    build: Build[HttpSettingsT],
    *,
    migrations: Path | None = None,
    connect_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> None:
    """Run an HTTP service until SIGTERM or SIGINT, then exit with status 0.

    With the argument `migrate` on the command line, migrate the database and exit instead.

    Args:
        name: name of the service, such as `storefront`.
        settings_type: its settings, read from the environment.
        build: a context manager that opens stores, channels and tasks and yields the application; it exits after the
            drain. The application gets no lifespan events.
        migrations: folder of the service's migrations, if it has a database.
        connect_seconds: how long to wait at the start for PostgreSQL to accept a connection.
    """

    async def serve(settings: HttpSettingsT, telemetry: Telemetry) -> None:
        service = HttpService(settings, telemetry)
        await serve_until_stopped(serving(service, build(settings, service)), reload=settings.reload)

    run_process(name, settings_type, serve, migrations=migrations, connect_seconds=connect_seconds)


@asynccontextmanager
async def serving(
    service: HttpService, resources: AbstractAsyncContextManager[ASGIApp]
) -> AsyncIterator[Mapping[str, int]]:
    """Open the resources and serve the application that they yield; on exit drain, then close the resources.

    Yields the port by the name `port`. Raises OSError with the address when it is in use.
    """
    settings = service.settings
    limits = ConnectionLimits(
        head_seconds=settings.header_timeout_seconds,
        body_seconds=settings.body_timeout_seconds,
        connections=settings.max_connections,
    )
    _raise_file_limit(limits)
    try:
        async with resources as app:
            listener = _listen(settings.host, settings.port)
            server = AsgiServer(
                service.wrap(app),
                limits,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve(sockets=[listener]), name="http")
                try:
                    yield {"port": listener.getsockname()[1]}
                finally:
                    service.begin_drain()
                    # Endpoints are removed after SIGTERM, not before it: serve meanwhile.
                    await asyncio.sleep(settings.drain_seconds)
                    server.stop()
    finally:
        await service.close()


def _raise_file_limit(limits: ConnectionLimits) -> None:
    """Allow the process to open as many files as connections, and the files of everything else."""
    needed = limits.connections + limits.probe_connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning("MAX_CONNECTIONS exceeds the limit of open files", limit=allowed)


def _listen(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        if ":" in address:
            dual_stack = address == "::" and socket.has_dualstack_ipv6()
            return socket.create_server(
                (address, port), family=socket.AF_INET6, dualstack_ipv6=dual_stack, backlog=_BACKLOG
            )
        return socket.create_server((address, port), backlog=_BACKLOG)
    except OSError as error:
        setting = "PORT" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "HOST"
        reason = (error.strerror or "").partition(" (while ")[0]  # Python appends the address
        raise OSError(f"{setting}: can't listen on {host}:{port}: {reason}") from error
