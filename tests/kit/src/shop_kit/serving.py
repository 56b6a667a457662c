"""Serve servicers in the test's process on a real port, with telemetry in memory."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.process import ReadinessCheck
from chassis.rpc import server
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings

Registration = tuple[Callable[[Any, Any], None], object]


@asynccontextmanager
async def running(
    *registrations: Registration,
    internal: Sequence[Registration] = (),
    checks: Sequence[ReadinessCheck] = (),
    telemetry: Telemetry | None = None,
    **settings: object,
) -> AsyncIterator[server.Service]:
    """Run a service with these settings, on free ports of loopback; its readiness is checked at the start alone.

    Each registration is a generated add_..._to_server function and a servicer.
    """
    service = server.Service(load_settings(ServiceSettings, settings), telemetry or Telemetry())
    for register, servicer in registrations:
        service.add_servicer(register, servicer)
    for register, servicer in internal:
        service.add_internal_servicer(register, servicer)
    for check in checks:
        service.add_readiness_check(check)
    async with service.channels:
        await service.start()
        try:
            yield service
        finally:
            await service.drain()


@asynccontextmanager
async def serve(*registrations: Registration, **options: Any) -> AsyncIterator[str]:
    """Run a service as `running` does; yield the `host:port` of its public port."""
    async with running(*registrations, **options) as service:
        yield f"127.0.0.1:{service.port}"


@asynccontextmanager
async def connect(*registrations: Registration, telemetry: Telemetry | None = None) -> AsyncIterator[grpc.aio.Channel]:
    """Serve servicers and yield a plain channel to them, which shows status codes, details and trailers unchanged."""
    async with serve(*registrations, telemetry=telemetry) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


@dataclass(frozen=True)
class Recorded:
    """Telemetry that records its spans in memory."""

    telemetry: Telemetry
    exporter: InMemorySpanExporter

    def spans(self) -> list[ReadableSpan]:
        """Return the finished spans, oldest first."""
        return list(self.exporter.get_finished_spans())
