import asyncio
import logging as standard_logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import orjson
import pytest
import structlog
from opentelemetry import trace
from opentelemetry.context import Context as OtelContext
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from chassis import logging, otlp
from chassis.otlp_batches import SpanBatches
from shop import cart_pb2, cart_pb2_grpc, empty_pb2
from shop_testkit.serving import connect
from shop_testkit.waiting import wait_until

Context = grpc.aio.ServicerContext[Any, Any]


class Collector(
    trace_service_pb2_grpc.TraceServiceServicer,
    metrics_service_pb2_grpc.MetricsServiceServicer,
    logs_service_pb2_grpc.LogsServiceServicer,
):
    """An OTLP receiver that keeps every request in `received`."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.received.append(request)
        responses = {
            "ExportTraceServiceRequest": trace_service_pb2.ExportTraceServiceResponse,
            "ExportMetricsServiceRequest": metrics_service_pb2.ExportMetricsServiceResponse,
            "ExportLogsServiceRequest": logs_service_pb2.ExportLogsServiceResponse,
        }
        return responses[type(request).__name__]()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    receiver = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(trace, "set_tracer_provider", lambda _provider: None)
    yield receiver
    server.stop(0)


class Carts(cart_pb2_grpc.CartServiceServicer):
    async def GetCart(self, request: cart_pb2.GetCartRequest, context: Context) -> cart_pb2.Cart:
        structlog.get_logger().info("cart read", items=3)
        return cart_pb2.Cart()

    async def AddItem(self, request: cart_pb2.AddItemRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()


async def exported(collector: Collector) -> SimpleNamespace:
    """Make one call and return its span, metrics and log records as the collector received them."""
    telemetry = otlp.configure("cart")
    logging.configure("cart", logger=telemetry.logger)
    async with connect((cart_pb2_grpc.add_CartServiceServicer_to_server, Carts()), telemetry=telemetry) as channel:
        await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest())
    telemetry.shutdown()
    spans = [
        s
        for r in collector.received
        for rs in getattr(r, "resource_spans", ())
        for ss in rs.scope_spans
        for s in ss.spans
    ]
    metrics = {
        m.name: m
        for r in collector.received
        for rm in getattr(r, "resource_metrics", ())
        for sm in rm.scope_metrics
        for m in sm.metrics
    }
    records = [
        lr
        for r in collector.received
        for rl in getattr(r, "resource_logs", ())
        for sl in rl.scope_logs
        for lr in sl.log_records
    ]
    return SimpleNamespace(spans=spans, metrics=metrics, records=records)


async def test_a_call_is_exported_as_a_span_a_histogram_with_an_exemplar_and_a_correlated_log(
    collector: Collector,
) -> None:
    found = await exported(collector)
    (span,) = found.spans
    (point,) = found.metrics["rpc.server.call.duration"].histogram.data_points
    (record,) = [record for record in found.records if record.body.string_value == "cart read"]
    assert (point.count, found.metrics["rpc.server.call.duration"].unit) == (1, "s")
    assert [(e.trace_id, e.span_id) for e in point.exemplars] == [(span.trace_id, span.span_id)]
    assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
    assert {a.key: a.value.int_value for a in record.attributes if a.key == "items"} == {"items": 3}


def context_of(flags: int) -> OtelContext:
    """Return a context whose span has these flags and was started by another process."""
    parent = SpanContext(7, 8, True, TraceFlags(flags), TraceState([("vendor", "1")]))
    return trace.set_span_in_context(NonRecordingSpan(parent), OtelContext())


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("sampler", "flags", "is_recorded"),
    [
        ("parentbased_always_on", TraceFlags.DEFAULT, False),
        ("parentbased_always_on", TraceFlags.RANDOM_TRACE_ID, False),
        ("parentbased_always_on", TraceFlags.SAMPLED, True),
        ("parentbased_always_off", TraceFlags.SAMPLED, True),
        ("always_on", TraceFlags.DEFAULT, True),
        ("always_off", TraceFlags.SAMPLED, False),
    ],
)
def test_a_span_follows_the_decision_of_its_parent_if_the_sampler_does(
    monkeypatch: pytest.MonkeyPatch, sampler: str, flags: int, is_recorded: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    telemetry = otlp.configure("cart")
    spans = [telemetry.tracer.start_span("call", context_of(flags)) for _ in range(2)]
    telemetry.shutdown()
    assert [span.is_recording() for span in spans] == [is_recorded, is_recorded]
    contexts = [span.get_span_context() for span in spans]
    others = flags & ~TraceFlags.SAMPLED
    for context in contexts:
        assert (context.trace_id, dict(context.trace_state)) == (7, {"vendor": "1"})
        assert context.trace_flags == (others | TraceFlags.SAMPLED if is_recorded else others)
    assert len({context.span_id for context in contexts} | {8}) == 3


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("sampler", "is_recorded"), [("parentbased_always_on", True), ("parentbased_always_off", False)]
)
def test_the_sampler_decides_about_a_span_without_a_parent(
    monkeypatch: pytest.MonkeyPatch, sampler: str, is_recorded: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    telemetry = otlp.configure("cart")
    assert telemetry.tracer.start_span("call", OtelContext()).is_recording() == is_recorded
    with telemetry.tracer.start_as_current_span("call", OtelContext()) as span:
        assert span.is_recording() == is_recorded
    telemetry.shutdown()


async def test_resident_memory_is_a_metric(collector: Collector) -> None:
    found = await exported(collector)
    (point,) = found.metrics["process.memory.usage"].sum.data_points
    assert point.as_int > 1_000_000 or point.as_double > 1_000_000


class HangingExporter(SpanExporter):
    """Receives spans, and does not return before it may."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.may_return = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.names += [span.name for span in spans]
        self.may_return.wait(60)
        return SpanExportResult.SUCCESS


async def test_a_collector_that_hangs_blocks_one_thread_and_gets_the_other_spans_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    exporter, tracers = HangingExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SpanBatches(exporter))
    tracer = tracers.get_tracer("test")
    tracer.start_span("first").end()
    await wait_until(lambda: exporter.names)
    before = threading.active_count()
    for _ in range(20):
        tracer.start_span("later").end()
        await asyncio.sleep(0.005)
    assert threading.active_count() <= before
    exporter.may_return.set()
    await wait_until(lambda: len(exporter.names) == 21)
    tracers.shutdown()


async def test_spans_and_log_records_are_exported_soon_after_they_were_recorded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "20")
    telemetry = otlp.configure("cart")
    logging.configure("cart", logger=telemetry.logger)

    def received(count: int) -> bool:
        kinds = [type(request) for request in collector.received]
        traces, logs = trace_service_pb2.ExportTraceServiceRequest, logs_service_pb2.ExportLogsServiceRequest
        return kinds.count(traces) == kinds.count(logs) == count

    for count in (1, 2):
        telemetry.tracer.start_span("a span").end()
        structlog.get_logger().info("an event")
        await wait_until(partial(received, count))
    telemetry.shutdown()


def test_without_an_endpoint_nothing_is_recorded() -> None:
    assert not otlp.configure("cart", {}).tracer.start_span("x").is_recording()


def test_without_an_endpoint_neither_the_sdk_nor_a_database_library_is_imported() -> None:
    program = (
        "import sys; from chassis import otlp, server; otlp.configure('cart', {});"
        "heavy = ('opentelemetry.sdk', 'opentelemetry.exporter', 'sqlalchemy', 'alembic', 'psycopg');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_each_kind_of_service_imports_its_own_server_only() -> None:
    for module, foreign in (("server", ("uvicorn", "starlette")), ("http_server", ("grpc", "google"))):
        program = f"import sys, chassis.{module}; print([name for name in sys.modules if name.startswith({foreign})])"
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ran.stdout == "[]\n"


def test_an_event_is_one_json_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logging.configure("cart")
    structlog.get_logger().info("charged", order_id="7")
    event = orjson.loads(capsysbinary.readouterr().out)
    del event["time"]
    assert event == {"event": "charged", "order_id": "7", "level": "info", "service": "cart"}


def test_events_below_the_level_are_dropped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logging.configure("cart", level="warning")
    structlog.get_logger().info("charged")
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize("number", ["4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242"])
def test_long_numbers_in_a_traceback_are_masked(capsysbinary: pytest.CaptureFixture[bytes], number: str) -> None:
    logging.configure("payment")
    try:
        int(f"bad card {number}!")
    except ValueError:
        structlog.get_logger().exception("unexpected error")
    line = capsysbinary.readouterr().out.decode()
    assert "4242" not in line
    assert "bad card [number]!'" in line


def test_log_records_of_libraries_have_the_same_format(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logging.configure("cart")
    standard_logging.getLogger("grpc").warning("lost %s", "it")
    assert orjson.loads(capsysbinary.readouterr().out)["event"] == "lost it"
