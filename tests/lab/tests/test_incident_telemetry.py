"""What investigators get of an incident, from the stores of a release too, and the formats of others."""

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shop_cli.control_room import jaeger
from shop_cli.local.spans import Span, Value
from shop_cli.local.telemetry_store import TelemetryStore
from shop_kit.http_serving import serve_http
from shop_lab.incidents import telemetry
from shop_lab.incidents.catalogue import find
from shop_lab.incidents.cluster_telemetry import Stores
from shop_lab.incidents.exports import NotExportable, export
from shop_lab.incidents.own_time import columns_of
from shop_lab.incidents.record import InjectedFault, Plan, Record, Times
from shop_lab.incidents.telemetry import LogRecord, Telemetry, TelemetryMissing

SECOND = 10**9
BEGAN = 1_700_000_000
INJECTED = BEGAN + 30
"""A minute of orders, in the second half of which payment is slow."""


def span(service: str, kind: str, began: float, ended: float, parent: str = "", **changes: object) -> Span:
    attributes: dict[str, Value] = {"rpc.method": "m"} if kind == "CLIENT" else {}
    moments, identifier = (round(began * SECOND), round(ended * SECOND)), f"{service}-{kind}-{began}"
    found = Span(service, "", "t", identifier, parent, service, kind, *moments, attributes, failed=False)
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.fixture
def collected() -> Telemetry:
    seconds = range(BEGAN, BEGAN + 60)
    charges = [span("payment", "SERVER", second, second + (0.5 if second >= INJECTED else 0.1)) for second in seconds]
    logs = [LogRecord(BEGAN * SECOND, "payment", "INFO", "charged", "ab", "cd")]
    names = ("payment_cpu", "payment_mem", "checkout_rpc-server-call-duration")
    metrics = {name: dict.fromkeys(seconds[::5], 0.25) for name in names}
    return Telemetry(charges, logs, metrics).between(0, 2**62)


def test_files_have_what_was_collected(collected: Telemetry, tmp_path: Path) -> None:
    collected.write(tmp_path)
    assert telemetry.read(tmp_path) == collected
    with pytest.raises(TelemetryMissing, match="no telemetry: .*spans.jsonl is missing"):
        telemetry.read(tmp_path / "none")


# ---------------------------------------------------------------- formats


def recorded(
    collected: Telemetry, folder: Path, fault: str, *, seconds: float = 60, removed_after: float | None = None
) -> Path:
    record = Record(folder, Plan(faults=(fault,), seconds=(seconds,)), "shop", {})
    collected.write(record.folder / "telemetry")
    removed = None if removed_after is None else int((INJECTED + removed_after) * SECOND)
    times = Times(requested=INJECTED * SECOND, applied=INJECTED * SECOND, removed=removed)
    record.truth.faults.append(InjectedFault(fault=find(fault), seconds=seconds, times=times))
    record.close()
    return record.folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rcaeval_reads_a_folder_that_names_service_and_fault(collected: Telemetry, tmp_path: Path) -> None:
    run = recorded(collected, tmp_path / "runs", "delay-payment")
    folder = export(run, "rcaeval", tmp_path / "out")
    assert folder.name == "shop_checkout_delay_1"
    assert export(run, "rcaeval", tmp_path / "out").name == "shop_checkout_delay_2"
    assert (folder / "inject_time.txt").read_text() == f"{INJECTED}\n"
    metrics = json.loads((folder / "metrics.json").read_text())
    # Its loaders split names at the first underscore, and inclusive durations would blame callers.
    own = {f"payment_{name}" for name in ("latency-90", "workload", "error", "silence")}
    assert set(metrics) == {"payment_cpu", "payment_mem", *own}
    # Its methods skip columns with gaps.
    (seconds,) = {tuple(second for second, _ in points) for points in metrics.values()}
    assert seconds == tuple(range(BEGAN, BEGAN + 60))
    assert {value for _, value in metrics["payment_cpu"]} == {0.25}
    first, *_, last = rows_of(folder / "traces.csv")
    assert (first["startTime"], first["startTimeMillis"]) == (f"{BEGAN * 10**6}", f"{BEGAN * 10**3}")
    assert (first["duration"], last["duration"]) == ("100000", "500000")
    (log,) = rows_of(folder / "logs.csv")
    assert list(log) == ["time", "timestamp", "container_name", "message", "level", "req_path", "error"]


@pytest.mark.parametrize(("seconds", "removed_after"), [(20, None), (20, 30), (3600, 20)])
def test_a_case_of_rcaeval_ends_with_the_fault(
    seconds: float, removed_after: float | None, collected: Telemetry, tmp_path: Path
) -> None:
    run = recorded(collected, tmp_path, "ad-slow", seconds=seconds, removed_after=removed_after)
    folder = export(run, "rcaeval", tmp_path / "out")
    assert max(int(row["startTime"]) // 10**6 for row in rows_of(folder / "traces.csv")) == INJECTED + 19
    metrics = json.loads((folder / "metrics.json").read_text())
    assert max(second for points in metrics.values() for second, _ in points) < INJECTED + 20


def test_openrca_gets_runs_of_a_system_by_date(collected: Telemetry, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for fault in ("pg-lock", "ad-slow"):
        export(run := recorded(collected, tmp_path / "runs", fault), "openrca", out)
        with pytest.raises(NotExportable, match="has this run already"):
            export(run, "openrca", out)
    record, _ = rows_of(out / "record.csv")
    assert (record["level"], record["component"], record["reason"]) == ("service", "payment", "db close")
    assert datetime.fromisoformat(f"{record['datetime']}+00:00").timestamp() == int(record["timestamp"])
    (date,) = (out / "telemetry").iterdir()
    assert date.name == record["datetime"][:10].replace("-", "_")
    spans = rows_of(date / "trace" / "trace_span.csv")
    assert (len(spans), spans[0]["timestamp"]) == (2 * len(collected.spans), f"{BEGAN * 1000}")
    assert {row["cmdb_id"] for row in rows_of(date / "log" / "log_service.csv")} == {"payment"}
    kpis = {row["kpi_name"] for row in rows_of(date / "metric" / "metric_container.csv")}
    assert kpis >= {"cpu", "mem", "latency-90"}


@pytest.mark.parametrize(
    ("form", "fault", "message"),
    [
        ("rcaeval", "quiet", "rcaeval has no word for the fault of this run"),
        ("rcaeval", "pg-lock", "rcaeval has no word for the fault of this run"),
        ("csv", "ad-slow", "must be one of rcaeval, openrca"),
    ],
)
def test_what_a_format_cannot_say_is_one_line(
    collected: Telemetry, tmp_path: Path, form: str, fault: str, message: str
) -> None:
    with pytest.raises(NotExportable, match=re.escape(message)):
        export(recorded(collected, tmp_path, fault), form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- own time


def test_a_call_that_never_arrives_is_a_wait_for_the_callee() -> None:
    earlier = span("payment", "SERVER", 0, 1, trace_id="u")
    request = span("checkout", "SERVER", 2, 9)
    call = span("checkout", "CLIENT", 3, 8, request.span_id, name="payment", failed=True)
    columns = columns_of([earlier, request, replace(call, failed=True)])
    assert columns["payment_wait"] == {8: 5000.0}
    assert columns["checkout_latency-90"] == {9: 2000.0}
    assert columns["payment_error"][8] == 100
    assert sum(columns["checkout_error"].values()) == 0


def test_parallel_calls_are_not_subtracted_twice_and_statements_are_own_time() -> None:
    request = span("checkout", "SERVER", 0, 10)
    calls = [span("checkout", "CLIENT", began, began + 4, request.span_id) for began in (1, 2, 3)]
    statement = span("checkout", "CLIENT", 8, 9, request.span_id, attributes={"db.system.name": "sqlite"})
    assert columns_of([request, *calls, statement])["checkout_latency-90"] == {10: 4000.0}


def test_silence_rises_when_a_service_stops() -> None:
    spans = [span("email", "SERVER", began, began + 1) for began in (0, 1)] + [span("ad", "SERVER", 5, 6)]
    assert columns_of(spans)["email_silence"] == {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4}


# ---------------------------------------------------------------- stores of a release, which respond as documented

LINES, TRACES = 5_003, 250
"""More than a response has."""
MATCHER = 'k8s_namespace_name="shop"'


def _logs(request: Request) -> Response:
    start, end, limit = (int(request.query_params[name]) for name in ("start", "end", "limit"))
    assert request.query_params["query"] == f"{{{MATCHER}}}"
    times = [time for time in range(BEGAN * SECOND, BEGAN * SECOND + LINES) if start <= time < end]
    labels = {"service_name": "ad", "severity_text": "INFO", "trace_id": "ab", "k8s_pod_name": "ad-1", "lines": "3"}
    streams = [{"stream": labels, "values": [[str(time), "served"] for time in times[:limit]]}]
    return JSONResponse({"status": "success", "data": {"resultType": "streams", "result": streams}})


def _metrics(request: Request) -> Response:
    given = request.query_params
    assert MATCHER in given["query"]
    assert given["step"] == "1"
    result = []
    if given["query"].startswith("sum by (service_name) (irate(process_cpu_time_seconds_total{"):
        values = [[float(given["start"]), "0.25"], [float(given["start"]) + 1, "NaN"]]
        result = [{"metric": {"service_name": "ad"}, "values": values}]
    return JSONResponse({"status": "success", "data": {"resultType": "matrix", "result": result}})


@asynccontextmanager
async def stores(spans: int) -> AsyncIterator[Stores]:
    kept = TelemetryStore()
    for number in range(spans):
        identifiers, began = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}, BEGAN + number / 50
        kept.store(span("ad", "SERVER", began, began + 0.001, attributes={"n": 1}, failed=True, **identifiers))
    routes = [
        *jaeger.routes(kept),
        Route("/api/v3/services", lambda _: JSONResponse({"services": ["ad", "cart"]})),
        Route("/api/v1/query_range", _metrics),
        Route("/loki/api/v1/query_range", _logs),
    ]
    async with serve_http(Starlette(routes=routes)) as url:
        yield Stores(url, url, url, MATCHER)


async def test_everything_of_the_window_is_collected_page_by_page() -> None:
    async with stores(TRACES) as found:
        collected = await asyncio.to_thread(found.collect, BEGAN * SECOND, (BEGAN + 30) * SECOND)
    assert [found.trace_id for found in collected.spans] == [f"{number:032x}" for number in range(TRACES)]
    first = collected.spans[0]
    assert (first.span_id, first.attributes, first.failed) == ("0" * 16, {"n": 1}, True)
    assert len(collected.logs) == LINES
    assert collected.logs[0] == LogRecord(BEGAN * SECOND, "ad", "INFO", "served lines=3", "ab")
    assert collected.metrics["ad_cpu"] == {BEGAN: 0.25}
    assert collected.metrics["ad_error"][BEGAN] == 100


async def test_a_store_without_traces_of_the_run_or_that_is_gone_is_one_line() -> None:
    async with stores(0) as found:
        with pytest.raises(TelemetryMissing, match="Jaeger has no trace of the run"):
            await asyncio.to_thread(found.collect, BEGAN * SECOND, (BEGAN + 1) * SECOND)
    gone = "http://127.0.0.1:1"
    with pytest.raises(TelemetryMissing, match="a store of telemetry failed: ConnectError"):
        Stores(gone, gone, gone, MATCHER).collect(0, SECOND)
