from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import grpc
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from shop_cli.local.spans import Span, Value

# Most names, ids and values occur in many spans. Storing equal strings only once halves the spans' memory use.
_shared = lru_cache(maxsize=16_384)(str)
_KINDS = {number: name.removeprefix("SPAN_KIND_") for name, number in WireSpan.SpanKind.items()}


@asynccontextmanager
async def receiver(port: int, sink: Callable[[Message], None]) -> AsyncIterator[None]:
    """Pass export requests that arrive on a loopback port to `sink` until the context exits."""
    server = grpc.aio.server()
    signals = {"Trace": trace_service_pb2, "Metrics": metrics_service_pb2, "Logs": logs_service_pb2}
    server.add_generic_rpc_handlers([_handler(sink, signal, messages) for signal, messages in signals.items()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        del server  # its finalizer needs the event loop, but a traceback could keep it alive until the loop is closed


def exporting_to(port: int, *, delay_milliseconds: int = 200) -> dict[str, str]:
    """Return environment variables that make services export all telemetry to a receiver on a local port."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_TRACES_SAMPLER": "parentbased_always_on",
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1024",  # truncate long values, such as URLs of 64 kB
        "OTEL_BSP_SCHEDULE_DELAY": str(delay_milliseconds),
        "OTEL_BLRP_SCHEDULE_DELAY": str(delay_milliseconds),
        "OTEL_METRIC_EXPORT_INTERVAL": str(5 * delay_milliseconds),
    }


def _handler(sink: Callable[[Message], None], signal: str, messages: Any) -> grpc.GenericRpcHandler:
    request: Callable[[bytes], Message] = getattr(messages, f"Export{signal}ServiceRequest").FromString

    async def export(message: Message, _context: object) -> bytes:
        sink(message)
        return b""  # an empty protobuf message

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(export, request)
    service = f"opentelemetry.proto.collector.{signal.lower()}.v1.{signal}Service"
    return grpc.method_handlers_generic_handler(service, {"Export": handler})


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {_shared(pair.key): _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    found = getattr(value, kind) if kind else ""
    return found if isinstance(found, int | float) else _shared(str(found))


def spans_of(message: Message) -> Iterator[Span]:
    """Yield the spans in an export request. Requests with metrics or logs contain none."""
    if not isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
        return
    for group in message.resource_spans:
        resource = attributes_of(group.resource.attributes)
        service, instance = (str(resource.get(name, "")) for name in ("service.name", "service.instance.id"))
        for scope in group.scope_spans:
            for wire in scope.spans:
                yield _span(service, instance, wire)


def _span(service: str, instance: str, wire: WireSpan) -> Span:
    return Span(
        service=service,
        instance=instance,
        trace_id=_shared(wire.trace_id.hex()),
        span_id=wire.span_id.hex(),
        parent_id=_shared(wire.parent_span_id.hex()),
        name=_shared(wire.name),
        kind=_KINDS[wire.kind],
        started_nanos=wire.start_time_unix_nano,
        ended_nanos=wire.end_time_unix_nano,
        attributes=attributes_of(wire.attributes),
        failed=wire.status.code == Status.STATUS_CODE_ERROR,
    )
