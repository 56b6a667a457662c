"""Serve servicers in the test's process on a real port, with telemetry in memory."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.process import ReadinessCheck
from chassis.rpc import server
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def registrations(servicers: Iterable[object]) -> Iterator[tuple[Callable[[Any, Any], None], object]]:
    """Yield the servicers with the functions that add them to a server, which are beside their generated bases.

    One whose methods are not of generated bases names those as `bases`.
    """
    for servicer in servicers:
        bases = getattr(servicer, "bases", type(servicer).__mro__)
        generated = [base for base in bases if base.__module__.endswith("_pb2_grpc")]
        if not generated:
            raise TypeError(f"{servicer!r} has no generated base")
        for base in generated:
            yield getattr(import_module(base.__module__), f"add_{base.__name__}_to_server"), servicer


@asynccontextmanager
async def running(
    *servicers: object,
    internal: Iterable[object] = (),
    checks: Sequence[ReadinessCheck] = (),
    telemetry: Telemetry | None = None,
    **settings: object,
) -> AsyncIterator[server.Service]:
    """Run a service with these settings, on free ports of loopback; its readiness is checked at the start alone."""
    service = server.Service(load_settings(ServiceSettings, settings), telemetry or Telemetry())
    for register, servicer in registrations(servicers):
        service.add_servicer(register, servicer)
    for register, servicer in registrations(internal):
        service.add_internal_servicer(register, servicer)
    for check in checks:
        service.readiness_checks.append(check)
    async with service.channels:
        await service.start()
        try:
            yield service
        finally:
            await service.drain()


@asynccontextmanager
async def serve(*servicers: object, **options: Any) -> AsyncIterator[str]:
    """Run a service as `running` does; yield the `host:port` of its public port."""
    async with running(*servicers, **options) as service:
        yield f"127.0.0.1:{service.port}"


@asynccontextmanager
async def connect(*servicers: object, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    """Serve servicers and yield a plain channel to them, which shows status codes, details and trailers unchanged."""
    async with serve(*servicers, **options) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


@asynccontextmanager
async def program(
    settings: type[SettingsT],
    build: Callable[[SettingsT, server.Service], AbstractAsyncContextManager[None]],
    telemetry: Telemetry | None = None,
    *,
    internal: bool = False,
    **values: object,
) -> AsyncIterator[grpc.aio.Channel]:
    """Run a service as its program does, on free ports; yield a plain channel to its public or its internal one."""
    loaded = load_settings(settings, values)
    service = server.Service(loaded, telemetry or Telemetry())
    async with server.serving(service, build(loaded, service)):
        port = service.internal_port if internal else service.port
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel


async def health(channel: grpc.aio.Channel, service: str) -> str:
    """Return the name of a service's health, or of the status with which the check failed."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


@dataclass(frozen=True)
class Recorded:
    """Telemetry that records its spans in memory."""

    telemetry: Telemetry
    exporter: InMemorySpanExporter

    def spans(self) -> list[ReadableSpan]:
        """Return the finished spans, oldest first."""
        return list(self.exporter.get_finished_spans())
