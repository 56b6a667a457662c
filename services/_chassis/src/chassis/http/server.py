"""Runs an HTTP service, with the same settings, telemetry and life cycle as a gRPC service in `chassis.rpc.server`."""

import asyncio
import errno
import ipaddress
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any, TypeVar, cast

import structlog
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from chassis.errors import DomainError
from chassis.http.checks import with_allowed_hosts, with_one_length, with_probes
from chassis.http.limits import REFUSED, Connections, HeadTimeoutProtocol, LimitedApplication
from chassis.http.serving import ObservedApplication, with_headers
from chassis.process import ReadinessCheck, run_process
from chassis.settings import Parse, Port, PositiveFloat, PositiveInt, ServerSettings
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.refusals import Refusals
from chassis.values.hosts import parse_host_patterns

log = structlog.get_logger()

# Must exceed load balancers' idle timeouts: otherwise, they might send requests on connections that we are closing.
_KEEP_ALIVE_SECONDS = 75
_STALL_SECONDS = 60  # how long a client may pause while reading its response
_READINESS_TIMEOUT_SECONDS = 2.0
_OTHER_FILES = 320
_SPARE_CONNECTIONS = 100  # connections reserved for health probes, and for answering excess requests with 503


def _parse_networks(text: str) -> tuple[str, ...]:
    try:
        networks = [ipaddress.ip_network(item.strip()) for item in text.split(",") if item.strip()]
    except ValueError as error:
        raise ValueError("must be addresses or networks, such as 10.0.0.0/8, separated by commas") from error
    if any(network.prefixlen == 0 for network in networks):
        raise ValueError("must not contain all addresses, because clients could then choose their own address")
    return tuple(map(str, networks))


class HttpServiceSettings(ServerSettings):
    port: Port = 8080
    header_timeout_seconds: PositiveFloat = 10
    body_timeout_seconds: PositiveFloat = 30
    max_connections: PositiveInt = 1000
    # Whether all clients use HTTPS. If so, cookies are sent over HTTPS only, and HSTS forbids plain HTTP.
    secure_cookie: bool = False
    trusted_proxies: Annotated[tuple[str, ...], Parse(_parse_networks)] = ()
    # Whether to trust the trace and baggage in request headers. Safe only if a gateway strips clients' trace headers.
    trust_traces: bool = False
    # The names that a request's Host header may contain. An empty set allows any name.
    allowed_hosts: Annotated[frozenset[str], Parse(parse_host_patterns)] = frozenset()


HttpSettingsT = TypeVar("HttpSettingsT", bound=HttpServiceSettings)


class HttpService:
    def __init__(self, settings: HttpServiceSettings, telemetry: Telemetry) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.readiness_checks: list[ReadinessCheck] = []
        self.unobserved: list[str] = []  # requests to paths with these prefixes get no spans, durations or log lines
        self.refusals = Refusals("http", telemetry, *REFUSED)
        self.is_draining = False

    def wrap(self, app: ASGIApp) -> ASGIApp:
        settings = self.settings
        # Probes bypass the limits, or busy pods would be restarted. They also bypass the host check, because their Host
        # header is the pod's address.
        limited = LimitedApplication(app, self.refusals, settings.max_connections, settings.body_timeout_seconds)
        checked = with_allowed_hosts(limited, settings.allowed_hosts, self.telemetry)
        observed = ObservedApplication(checked, self.telemetry, self.unobserved, trusts=settings.trust_traces)
        served = with_headers(with_probes(observed, self.is_ready), always_https=settings.secure_cookie)
        return cast("ASGIApp", ProxyHeadersMiddleware(cast("Any", served), [*settings.trusted_proxies]))

    async def is_ready(self) -> bool:
        if self.is_draining:
            return False
        try:
            async with asyncio.timeout(_READINESS_TIMEOUT_SECONDS):
                for check in self.readiness_checks:
                    await check()
        except Exception as error:
            unexpected = not isinstance(error, DomainError | TimeoutError)
            log.warning("not ready", reason=getattr(error, "reason", type(error).__name__), exc_info=unexpected)
            return False
        return True


class Server(uvicorn.Server):
    """A uvicorn server that stops when `should_exit` is set. `options` are passed to `uvicorn.Config`."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, **options: Any) -> None:
        config = uvicorn.Config(
            with_one_length(app, telemetry),
            ws="none",  # websockets would bypass the limits
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # by default, uvicorn trusts proxy headers from 127.0.0.1
            **options,
        )
        super().__init__(config)

    # Install no signal handlers: uvicorn's own would stop the server without draining.
    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


Build = Callable[[HttpSettingsT, HttpService], AbstractAsyncContextManager[ASGIApp]]


def run(name: str, settings_type: type[HttpSettingsT], build: Build[HttpSettingsT], **options: Any) -> None:
    """Serve the application that `build` yields until SIGTERM or SIGINT, then drain and exit `build`'s context."""

    def start(settings: HttpSettingsT, telemetry: Telemetry) -> AbstractAsyncContextManager[Mapping[str, int]]:
        service = HttpService(settings, telemetry)
        return serving(service, build(settings, service))

    run_process(name, settings_type, start, **options)


@asynccontextmanager
async def serving(
    service: HttpService, resources: AbstractAsyncContextManager[ASGIApp]
) -> AsyncIterator[Mapping[str, int]]:
    """Serve the application that `resources` yields, and yield the port. On exit, drain, then close the resources."""
    settings = service.settings
    _raise_file_limit(settings.max_connections + _OTHER_FILES)
    async with resources as app:
        listener = _listen(settings.host, settings.port)
        connections = Connections(settings.max_connections + _SPARE_CONNECTIONS, service.refusals)
        server = Server(
            service.wrap(app),
            service.telemetry,
            http=partial(HeadTimeoutProtocol, head_seconds=settings.header_timeout_seconds, all_open=connections),
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]), name="http")
            try:
                yield {"port": listener.getsockname()[1]}
            finally:
                service.is_draining = True
                # Keep serving for a while: after SIGTERM, it takes time for clients to learn that the pod is stopping.
                await asyncio.sleep(settings.drain_seconds)
                server.should_exit = True


def _raise_file_limit(needed: int) -> None:
    """Raise the open file limit to `needed`, or as far as the hard limit allows. Every connection uses a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning("MAX_CONNECTIONS exceeds the limit of open files", limit=allowed)


def _listen(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    if address == "::" and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, dualstack_ipv6=address == "::")
    except OSError as error:
        setting = "PORT" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "HOST"
        reason = (error.strerror or "").partition(" (while ")[0]  # drop the address that Python appends
        raise OSError(f"{setting}: can't listen on {host}:{port}: {reason}") from error
    if sys.platform == "linux":  # accepted connections inherit this option, so the kernel closes stalled connections
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALL_SECONDS * 1000)
    return listener
