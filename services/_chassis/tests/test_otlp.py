import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
import structlog

from chassis.rpc.connection import server_credentials
from chassis.telemetry import logging, otlp, semconv
from chassis.telemetry.instruments import Telemetry
from chassis.tls import certificates
from chassis.tls.certificates import Certificates
from shop_kit.certificates import new_authority, renew
from shop_kit.collector import Collector, grpc_collector, http_collector
from shop_kit.waiting import wait_until

SECRET = "Bearer 0123456789abcdef"
PROTOCOLS = {"grpc": grpc_collector, "http/protobuf": http_collector}
DROPPED = "shop.telemetry.dropped"


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def collector(protocol: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET.replace(' ', '%20')},x-tenant=7")
    for signal in ("BSP", "BLRP"):
        monkeypatch.setenv(f"OTEL_{signal}_SCHEDULE_DELAY", "5")
    with PROTOCOLS[protocol]() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f" {started.url}\n")
        yield started


def start() -> Telemetry:
    telemetry = otlp.configure("cart")
    logging.configure("cart", logger=telemetry.logger)
    return telemetry


def lost(telemetry: Telemetry, signal: str) -> float:
    return telemetry.counters[DROPPED].values[("shop.telemetry.signal", signal),]


def dropped(collector: Collector) -> dict[str, float]:
    """Return the latest number of dropped items, by signal."""
    points = collector.metrics[DROPPED].sum.data_points
    return {point.attributes[0].value.string_value: point.as_double or point.as_int for point in points}


async def test_telemetry_arrives_while_certificates_and_their_authority_are_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = new_authority(), new_authority("new")
    folders = {name: renew(tmp_path / name, old, name) for name in ("collector", "cart")}
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0)
    for variable, name in (("CERTIFICATE", "ca.crt"), ("CLIENT_CERTIFICATE", "tls.crt"), ("CLIENT_KEY", "tls.key")):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", str(folders["cart"] / name))
    monkeypatch.setenv("TLS_FOLDER", str(folders["cart"]))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    credentials = server_credentials(Certificates.load(str(folders["collector"])))
    port, telemetry = 0, Telemetry()
    for issuer, *others in ((old,), (old, new), (new, old), (new,)):
        for name, folder in folders.items():
            renew(folder, issuer, name, *others)
        # Restarting the collector makes every exporter reconnect.
        with grpc_collector(credentials, port) as collector:
            if port == 0:
                monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
                port, telemetry = int(collector.url.rpartition(":")[2]), otlp.configure("cart")
            telemetry.tracer.start_span("a span").end()
            await wait_until(lambda: collector.spans)
            if (issuer, *others) == (new,):
                telemetry.shutdown()
    assert dropped(collector) == {"traces": 0, "metrics": 0, "logs": 0}
    (point,) = collector.metrics[semconv.CERTIFICATE_EXPIRY.name].gauge.data_points
    assert point.as_int == Certificates.load(str(folders["cart"])).current.expires_at


async def test_all_signals_arrive_with_the_headers_and_fields_of_log_records_are_cut_to_the_limit(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    telemetry = start()
    telemetry.tracer.start_span("a span").end()
    structlog.get_logger().info("an event", city="Berlin")
    await wait_until(lambda: collector.spans and collector.records)
    telemetry.shutdown()
    assert [span.name for span in collector.spans] == ["a span"]
    [record] = collector.records
    assert record.body.string_value == "an event"
    assert {field.key: field.value.string_value for field in record.attributes}["city"] == "Ber"
    assert "process.cpu.time" in collector.metrics
    assert dropped(collector) == {"traces": 0, "metrics": 0, "logs": 0}
    assert (collector.headers["authorization"], collector.headers["x-tenant"]) == (SECRET, "7")


REFUSALS: dict[str, list[tuple[grpc.StatusCode | int, str]]] = {
    "grpc": [(grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"), (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")],
    # The HTTP exporter reports a retryable status only once it retries, which is after the timeout.
    "http/protobuf": [(503, "unknown"), (403, "HTTP 403")],
}


@pytest.mark.parametrize("kind", [0, 1])
async def test_what_a_collector_refuses_is_counted_logged_once_and_exported_when_it_takes_telemetry_again(
    collector: Collector,
    protocol: str,
    kind: int,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # shorter than the pause before a retry
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    collector.refusal, reason = REFUSALS[protocol][kind]
    telemetry = start()
    for number in (1, 2, 3):
        telemetry.tracer.start_span("a span").end()
        await wait_until(partial(lambda expected: lost(telemetry, "traces") == expected, number))
    await wait_until(lambda: lost(telemetry, "logs") >= 1)  # the log line about the lost spans
    await wait_until(lambda: lost(telemetry, "metrics") >= 2)
    collector.refusal = None
    telemetry.shutdown()
    assert dropped(collector)["traces"] == 3
    assert dropped(collector)["logs"] >= 1
    assert dropped(collector)["metrics"] >= 2
    lines = [line for line in capsysbinary.readouterr().out.decode().splitlines() if "traces" in line]
    assert len(lines) == 1
    assert f'"reason":"{reason}"' in lines[0]
    assert '"event":"telemetry dropped"' in lines[0]


async def test_while_a_collector_hangs_the_queue_is_bounded_and_the_rest_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    collector.may_answer.clear()
    telemetry = start()
    telemetry.tracer.start_span("hangs").end()
    await wait_until(lambda: collector.hanging)
    for _ in range(25):
        telemetry.tracer.start_span("later").end()
    collector.may_answer.set()
    telemetry.shutdown()
    assert [span.name for span in collector.spans] == ["hangs", *["later"] * 10]
    assert dropped(collector)["traces"] == 15


@pytest.mark.parametrize(
    ("protocol", "is_down"), [("grpc", False), ("http/protobuf", True)], indirect=["protocol"], ids=["hangs", "is down"]
)
def test_a_process_without_its_collector_ends_with_status_0_before_its_exporter_gives_up(
    collector: Collector, is_down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import structlog; from chassis.telemetry import logging, otlp; telemetry = otlp.configure('cart');"
        "logging.configure('cart', logger=telemetry.logger); structlog.get_logger().info('an event');"
        "telemetry.tracer.start_span('x').end(); telemetry.shutdown()"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    collector.may_answer.clear()
    if is_down:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", f"authorization: {SECRET}"),
        ("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}\nx=1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", SECRET),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.crt"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "10"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_PROPAGATORS", "tracecontext,b4"),
        ("OTEL_PROPAGATORS", "none,b3"),
    ],
)
def test_an_invalid_setting_ends_the_start_with_one_line_that_names_it(
    name: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        otlp.configure("cart")
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}: ")
    assert SECRET not in line


def resource_of(collector: Collector) -> dict[str, str]:
    [group] = collector.received[-1].resource_metrics
    return {pair.key: pair.value.string_value for pair in group.resource.attributes}


@pytest.mark.parametrize("protocol", ["grpc"], indirect=True)
def test_a_process_has_an_id_unless_the_environment_overrides_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    start().shutdown()
    default = resource_of(collector)
    assert default.items() >= {("service.name", "cart"), ("service.namespace", "shop")}
    assert default["service.instance.id"]
    given = {"service.version": "7", "service.instance.id": "pod-1", "k8s.pod.name": "pod-1", "service.name": "other"}
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", ",".join(f"{key}={value}" for key, value in given.items()))
    start().shutdown()
    assert resource_of(collector).items() >= {**given, "service.name": "cart", "service.namespace": "shop"}.items()
