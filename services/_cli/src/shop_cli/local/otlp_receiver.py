"""An OTLP receiver (gRPC) on loopback, for the demo, the control room and tests."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from typing_extensions import override

Value = str | int | float | bool
_COLLECTOR = "opentelemetry.proto.collector"


@dataclass(frozen=True)
class Span:
    """A finished span.

    Attributes:
        service: the `service.name` of the process.
        instance: its `service.instance.id`, "" if the process has none.
        trace_id, span_id: in hex.
        parent_id: in hex, "" for a root span.
        started_nanos, ended_nanos: nanoseconds since 1970.
    """

    service: str
    instance: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    started_nanos: int
    ended_nanos: int
    attributes: dict[str, Value]
    failed: bool

    @property
    def milliseconds(self) -> float:
        """The duration."""
        return (self.ended_nanos - self.started_nanos) / 1e6


class Sink(Protocol):
    """Takes what a receiver receives."""

    def add(self, message: Message) -> None:
        """Take an export request of traces, metrics or logs."""


@dataclass
class Received(Sink):
    """All export requests so far in order of arrival, and the spans in them. Unbounded: for short runs only."""

    messages: list[Message] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @override
    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.spans += spans_of(message)

    @property
    def metrics(self) -> list[tuple[str, Metric]]:
        """All metrics of all export requests, each with the name of its service."""
        return [
            (service_of(group.resource), metric)
            for message in self.messages
            if isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest)
            for group in message.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        ]


@asynccontextmanager
async def receiving(port: int) -> AsyncIterator[Received]:
    """Run a receiver on a port of loopback while in the context; yield all that it receives."""
    received = Received()
    async with receiver(port, received):
        yield received


@asynccontextmanager
async def receiver(port: int, sink: Sink) -> AsyncIterator[None]:
    """Run a receiver on a port of loopback while in the context, and pass what it receives to `sink`."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handler(sink, "trace.v1.TraceService", trace_service_pb2, "Trace"),))
    server.add_generic_rpc_handlers((_handler(sink, "metrics.v1.MetricsService", metrics_service_pb2, "Metrics"),))
    server.add_generic_rpc_handlers((_handler(sink, "logs.v1.LogsService", logs_service_pb2, "Logs"),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        del server  # its finalizer needs an open loop, and a traceback could hold it until the loop is closed


def children_by_parent(spans: Sequence[Span]) -> defaultdict[str, list[Span]]:
    """Return the spans of a trace by their parents' ids, siblings by their start; those without a parent by ""."""
    ids = {span.span_id for span in spans}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: each.started_nanos):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    return children


def exporting_to(port: int, *, delay_milliseconds: int = 200) -> dict[str, str]:
    """Return the environment variables with which services export all telemetry to a receiver, with little delay."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_TRACES_SAMPLER": "parentbased_always_on",
        "OTEL_BSP_SCHEDULE_DELAY": str(delay_milliseconds),
        "OTEL_BLRP_SCHEDULE_DELAY": str(delay_milliseconds),
        "OTEL_METRIC_EXPORT_INTERVAL": str(5 * delay_milliseconds),
    }


def _handler(sink: Sink, service: str, messages: Any, signal: str) -> grpc.GenericRpcHandler:
    request: Callable[[bytes], Message] = getattr(messages, f"Export{signal}ServiceRequest").FromString
    response: Message = getattr(messages, f"Export{signal}ServiceResponse")()

    async def export(message: Message, _context: object) -> Message:
        sink.add(message)
        return response

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        export, request, type(response).SerializeToString
    )
    return grpc.method_handlers_generic_handler(f"{_COLLECTOR}.{service}", {"Export": handler})


def service_of(resource: Resource) -> str:
    """Return the `service.name` of a resource, "" if it has none."""
    return str(attributes_of(resource.attributes).get("service.name", ""))


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    """Return attributes as Python values by key."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else ""


def spans_of(message: Message) -> Iterator[Span]:
    """Yield the spans in an export request; none if it is one of metrics or logs."""
    if not isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
        return
    for group in message.resource_spans:
        service, instance = service_of(group.resource), _instance_of(group.resource)
        for scope in group.scope_spans:
            for wire in scope.spans:
                yield _span(service, instance, wire)


def _instance_of(resource: Resource) -> str:
    return str(attributes_of(resource.attributes).get("service.instance.id", ""))


def _span(service: str, instance: str, wire: WireSpan) -> Span:
    return Span(
        service=service,
        instance=instance,
        trace_id=wire.trace_id.hex(),
        span_id=wire.span_id.hex(),
        parent_id=wire.parent_span_id.hex(),
        name=wire.name,
        kind=WireSpan.SpanKind.Name(wire.kind).removeprefix("SPAN_KIND_"),
        started_nanos=wire.start_time_unix_nano,
        ended_nanos=wire.end_time_unix_nano,
        attributes=attributes_of(wire.attributes),
        failed=wire.status.code == Status.STATUS_CODE_ERROR,
    )
