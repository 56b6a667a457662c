"""A port that serves RPCs, health checks and reflection."""

import asyncio
import logging

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME

from chassis.background import repeat
from chassis.rpc import limits
from chassis.rpc.connection import server_credentials
from chassis.rpc.grpc_server import Server
from chassis.rpc.introspection import Health, health_handlers, reflection_handlers
from chassis.rpc.serving import WrappingRegistrar
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry

# Suppress the traceback that gRPC logs whenever a client disconnects before reading its response.
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: "ExecuteBatchError" not in record.getMessage())
# Suppress gRPC's log records about metadata that isn't valid UTF-8: a single call would cause two.
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: not str(record.msg).startswith("Invalid encoding"))

# The name that liveness probes check. Always SERVING, because restarting an unready pod wouldn't repair its store.
_LIVENESS = "liveness"
# Customers' requests are small, but our own services send large batches.
_MAX_REQUEST_BYTES, _MAX_INTERNAL_BYTES = 64 * 1024, 4 * 1024 * 1024
# Calls per connection. Customers must not fill the queue of pending calls, which all clients share, over a few of them.
_MAX_CALLS, _MAX_INTERNAL_CALLS = 32, 100
# While stopping, close the remaining streams after this long without an RPC.
_IDLE_SECONDS = 0.5
_POLL_SECONDS = 0.1


class Listener:
    """A gRPC server with its own port and limits.

    With another listener's `health`, serves only health checks, in plaintext, because Kubernetes can't use mutual TLS.
    """

    def __init__(
        self, name: str, settings: ServiceSettings, telemetry: Telemetry, *, health: Health | None = None
    ) -> None:
        self._host = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
        self._options = [
            # With SO_REUSEPORT, a second server on the port would take some of the connections instead of failing.
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", _MAX_INTERNAL_CALLS if name == "internal" else _MAX_CALLS),
            ("grpc.max_receive_message_length", _MAX_INTERNAL_BYTES if name == "internal" else _MAX_REQUEST_BYTES),
            ("grpc.max_allowed_incoming_connections", settings.max_connections + limits.SPARE_CONNECTIONS),
            ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
            ("grpc.max_connection_age_grace_ms", int(settings.grace_seconds * 1000)),
            # By default, gRPC closes connections whose clients ping as often as ours do ("too many pings").
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.keepalive_permit_without_calls", 1),
            *limits.OPTIONS,
        ]
        self.limiter = limits.Limiter(name, settings.max_concurrent_rpcs, settings.max_connections, telemetry)
        self._certificates = None if health else settings.tls_folder
        callers = settings.allowed_calls if self._certificates else None
        self.registrar = WrappingRegistrar(telemetry, self.limiter, settings.failpoints, callers)
        self.health = health or Health()

    async def start(self, port: int, setting: str) -> int:
        """Serve on a port (0 picks a free one) and return its number. If that fails, raise OSError naming `setting`."""
        # Don't wrap health and reflection, or probes would count toward the limit and clutter the telemetry.
        services, peers, address = self.registrar.methods, self.limiter.peers, f"{self._host}:{port}"
        methods = {**services, SERVICE_NAME: health_handlers(self.health, peers)}
        if services:
            methods |= reflection_handlers([*services], peers)
        self._server = Server(self._options)
        for service, handlers in methods.items():
            self._server.add_registered_method_handlers(service, handlers)
        try:
            if self._certificates is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, server_credentials(self._certificates))
        except RuntimeError as error:  # gRPC's message doesn't say why this failed
            raise OSError(f"{setting}: can't listen on {address}: is the port in use, or HOST wrong?") from error
        peers.port = bound
        await self._server.start()
        self.health.set(_LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        self._watching = asyncio.create_task(repeat(peers.watch, 0, "connections not checked"), name="watch")
        return bound

    def set_readiness(self, *, ready: bool) -> None:
        """Report readiness for every service on this port and, under the empty name, for the process."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self.registrar.methods):
            self.health.set(name, status)

    async def stop(self, grace_seconds: float) -> None:
        """Stop accepting calls, and give calls in flight `grace_seconds` to finish.

        Clients may keep health watches open forever, so close the watches half a second after the last other call.
        """
        self._watching.cancel()
        stopping = asyncio.create_task(self._server.stop(grace_seconds), name="stop")
        idle_seconds = 0.0
        while not stopping.done() and idle_seconds < _IDLE_SECONDS:
            await asyncio.wait([stopping], timeout=_POLL_SECONDS)
            idle_seconds = 0 if self.limiter.in_flight else idle_seconds + _POLL_SECONDS
        await self._server.stop(None)
        await stopping
