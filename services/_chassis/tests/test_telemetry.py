import asyncio
import gc
import logging as standard_logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest
import structlog
from opentelemetry.context import Context as OtelContext

from chassis.background import in_background
from chassis.telemetry import logging, otlp, process_metrics, semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts
from shop_kit.collector import Collector, grpc_collector
from shop_kit.metrics import measured
from shop_kit.serving import connect
from shop_kit.waiting import wait_until


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with grpc_collector() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.url)
        yield started


async def test_a_call_is_a_span_a_histogram_with_an_exemplar_and_a_correlated_log(collector: Collector) -> None:
    telemetry = otlp.configure("cart")
    logging.configure("cart", logger=telemetry.logger)
    carts = Carts(lambda _: structlog.get_logger().info("cart read", items=3))
    async with connect(carts, telemetry=telemetry) as channel:
        await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest())
    telemetry.shutdown()
    (span,) = collector.spans
    (point,) = collector.metrics["rpc.server.call.duration"].histogram.data_points
    (record,) = [record for record in collector.records if record.body.string_value == "cart read"]
    assert (point.count, collector.metrics["rpc.server.call.duration"].unit) == (1, "s")
    assert [(e.trace_id, e.span_id) for e in point.exemplars] == [(span.trace_id, span.span_id)]
    assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
    assert {a.key: a.value.int_value for a in record.attributes if a.key == "items"} == {"items": 3}


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("sampler", "is_recorded", "follows_parents"),
    [
        ("parentbased_always_on", True, True),
        ("parentbased_always_off", False, True),
        ("always_on", True, False),
        ("always_off", False, False),
    ],
)
def test_the_sampler_of_the_environment_decides(
    monkeypatch: pytest.MonkeyPatch, sampler: str, is_recorded: bool, follows_parents: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    telemetry = otlp.configure("cart")
    assert telemetry.tracer.start_span("call", OtelContext()).is_recording() == is_recorded
    # Only if the sampler follows parents may calls in unsampled traces go without spans.
    assert telemetry.follows_parents is follows_parents
    telemetry.shutdown()


def test_the_process_is_measured() -> None:
    telemetry, metrics = measured()
    process_metrics.observe_process(telemetry)
    gc.collect()
    values = metrics()
    assert values["process.memory.usage",] > 1_000_000
    assert values["process.thread.count",] >= threading.active_count() >= 1
    assert values["process.unix.file_descriptor.count",] >= 3
    cpu = [values["process.cpu.time", (semconv.CPU_MODE, mode)] for mode in ("user", "system")]
    assert 0 < sum(cpu) < time.process_time() + 1
    assert all(values["cpython.gc.collections", (semconv.GC_GENERATION, generation)] for generation in range(3))
    assert sum(telemetry.histogram(semconv.GC_PAUSE).series[()].counts) >= 1


async def test_a_blocked_event_loop_is_recorded_as_lag() -> None:
    telemetry = Telemetry()
    lags = telemetry.histogram(semconv.LOOP_LAG)
    async with in_background(partial(process_metrics.record_loop_lag, telemetry)):
        await asyncio.sleep(0)  # lets the timer start
        time.sleep(0.3)  # noqa: ASYNC251 - the timer is due after 0.1 s
        await wait_until(lambda: lags.series)
    assert lags.series[()].maximum > 0.19
    assert sum(lags.series[()].counts) == 1


def test_without_an_endpoint_nothing_is_recorded() -> None:
    assert not otlp.configure("cart").tracer.start_span("x").is_recording()


HEAVY = ("alembic", "opentelemetry.exporter", "opentelemetry.sdk", "psycopg", "sqlalchemy", "starlette", "uvicorn")


@pytest.mark.parametrize(
    ("program", "not_needed"),
    [
        ("import chassis.rpc.server; from chassis.telemetry import otlp; otlp.configure('cart')", HEAVY),
        ("import chassis.http.server", ("grpc", "google")),
        ("from chassis.telemetry.sdk import load_exporters; load_exporters('grpc')", ("requests",)),
        (
            "from chassis.telemetry.sdk import load_exporters; load_exporters('http/protobuf')",
            ("opentelemetry.exporter.otlp.proto.grpc",),
        ),
    ],
)
def test_only_what_a_process_needs_is_imported(program: str, not_needed: tuple[str, ...]) -> None:
    program += f"; import sys; print([name for name in sys.modules if name.startswith({not_needed})])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def events(capsysbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    """Return the logged events without their times."""
    logged = [orjson.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    for event in logged:
        del event["time"]
    return logged


def test_an_event_is_one_json_line_whoever_logs_it_unless_it_is_below_the_level(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    logging.configure("cart", level="warning")
    structlog.get_logger().info("charging")
    structlog.get_logger().warning("charged", order_id="7")
    standard_logging.getLogger("grpc").warning("lost %s", "it")
    own, library = events(capsysbinary)
    assert own == {"event": "charged", "order_id": "7", "level": "warning", "service": "cart"}
    assert library.items() >= {"event": "lost it", "level": "warning", "service": "cart"}.items()


def test_a_logger_keeps_a_final_configuration(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logger = structlog.get_logger()
    logging.configure("cart", final=True)
    logger.info("charged")
    logging.configure("payment")
    logger.info("charged")
    assert [event["service"] for event in events(capsysbinary)] == ["cart", "cart"]


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


def test_card_numbers_in_fields_are_masked_and_ids_are_not(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logging.configure("payment")
    ids = {"order": "41111111-1111-1111-8abc-abcdefabcdef", "peer": "192.168.100.113:50051", "at": 1764370000000000000}
    structlog.get_logger().info(
        "x 4242/4242/4242/4242", user_id="a4242424242424242b", error=ValueError("4242_" * 4), seen=["4242" * 4], **ids
    )
    (event,) = events(capsysbinary)
    masked = {"event": "x [number]", "user_id": "a[number]b", "error": "[number]_", "seen": ["[number]"]}
    assert event.items() >= (masked | ids).items()
