"""Serve servicers in the test's process on a real port, with telemetry in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.rpc import server
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings

Registration = tuple[Callable[[Any, Any], None], object]


@asynccontextmanager
async def serve(
    *registrations: Registration, telemetry: Telemetry | None = None, **settings: object
) -> AsyncIterator[str]:
    """Serve servicers as a service with these settings does, on a free port of loopback; yield `host:port`.

    Each registration is a generated add_..._to_server function and a servicer.
    """
    service = server.Service(load_settings(ServiceSettings, settings), telemetry or Telemetry())

    @asynccontextmanager
    async def build() -> AsyncIterator[None]:
        for register, servicer in registrations:
            service.add_servicer(register, servicer)
        yield

    async with server.serving(service, build()):
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
