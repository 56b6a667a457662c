"""A port on which a service serves RPCs, with health and reflection of the services on it."""

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from chassis.rpc.serving import Limiter, WrappingRegistrar
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry

_HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
# Kubernetes restarts a pod that is not live. Readiness must not decide that: a restart does not repair a store.
_LIVENESS = "liveness"
_MAX_REQUEST_BYTES = 4 * 1024 * 1024

Register = Callable[[Any, Any], None]


class Listener:
    """A server of servicers, on a port of its own, with a limit of its own."""

    def __init__(self, name: str, settings: ServiceSettings, telemetry: Telemetry) -> None:
        self._host = settings.host
        self._server = grpc.aio.server(options=_options(settings))
        self.limiter = Limiter(name, settings.max_concurrent_rpcs, telemetry)
        self._registrar = WrappingRegistrar(self._server, telemetry, self.limiter, settings.failpoints)
        self._health = health_aio.HealthServicer()

    def add_servicer(self, register: Register, servicer: object) -> None:
        register(servicer, self._registrar)

    async def start(self, port: int, setting: str) -> int:
        """Serve on a port, 0 for a free one, and return it. Raise OSError with the setting's name if it is in use."""
        # These two are not wrapped: probes would count towards the limit, and fill traces and durations.
        add_health: Register = health_pb2_grpc.add_HealthServicer_to_server
        add_health(self._health, self._server)
        names = [*self._registrar.service_names, _HEALTH, reflection.SERVICE_NAME]
        add_reflection: Register = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
        add_reflection(reflection.aio.ReflectionServicer(names), self._server)
        address = f"{self._host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"{setting}: can't listen on {address}: is the port in use?") from error
        await self._server.start()
        await self._health.set(_LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        return bound

    async def set_readiness(self, *, ready: bool) -> None:
        """Report the readiness of every service on this port, and of the whole process under the empty name."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._registrar.service_names):
            await self._health.set(name, status)

    async def stop(self, grace_seconds: float) -> None:
        """Accept no more calls, and give those in flight so long to finish."""
        await self._server.stop(grace_seconds)


def _options(settings: ServiceSettings) -> list[tuple[str, int]]:
    return [
        # With SO_REUSEPORT a second server on the port would take a share of its connections instead of failing.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", int(settings.grace_seconds * 1000)),
        # By default gRPC closes the connection of a client that pings as often as ours do, with "too many pings".
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
