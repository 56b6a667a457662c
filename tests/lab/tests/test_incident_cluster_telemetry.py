"""Telemetry from the stores of a release, which respond here as their APIs are documented."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shop_cli.control_room import jaeger
from shop_cli.local.spans import Span
from shop_cli.local.telemetry_store import TelemetryStore
from shop_lab.incidents.cluster_telemetry import Stores
from shop_lab.incidents.telemetry import LogRecord, TelemetryMissing

SECOND = 10**9
BEGAN = 1_700_000_000
LINES = 5_003
"""More than a response has."""
TRACES = 250
MATCHER = 'k8s_namespace_name="shop"'


def _log(request: Request) -> Response:
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


def _traces() -> TelemetryStore:
    store = TelemetryStore()
    for number in range(TRACES):
        began = BEGAN * SECOND + number * SECOND // 50
        trace_id, span_id = f"{number:032x}", f"{number:016x}"
        store.store(
            Span("ad", "1", trace_id, span_id, "", "GetAds", "SERVER", began, began + 10**6, {"n": 1}, failed=True)
        )
    return store


@asynccontextmanager
async def stores(traces: TelemetryStore) -> AsyncIterator[Stores]:
    routes = [
        *jaeger.routes(traces),
        Route("/api/v3/services", lambda _: JSONResponse({"services": ["ad", "cart"]})),
        Route("/api/v1/query_range", _metrics),
        Route("/loki/api/v1/query_range", _log),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                yield Stores(url, url, url, MATCHER)
            finally:
                server.should_exit = True


async def test_everything_of_the_window_is_collected_page_by_page() -> None:
    async with stores(_traces()) as found:
        telemetry = await asyncio.to_thread(found.collect, BEGAN * SECOND, (BEGAN + 30) * SECOND)
    assert [span.trace_id for span in telemetry.spans] == [f"{number:032x}" for number in range(TRACES)]
    assert (telemetry.spans[0].span_id, telemetry.spans[0].attributes, telemetry.spans[0].failed) == (
        "0" * 16,
        {"n": 1},
        True,
    )
    assert len(telemetry.logs) == LINES
    assert telemetry.logs[0] == LogRecord(BEGAN * SECOND, "ad", "INFO", "served lines=3", "ab")
    assert telemetry.metrics["ad_cpu"] == {BEGAN: 0.25}
    assert telemetry.metrics["ad_error"][BEGAN] == 100


async def test_a_store_without_traces_of_the_run_is_one_line() -> None:
    async with stores(TelemetryStore()) as found:
        with pytest.raises(TelemetryMissing, match="Jaeger has no trace of the run"):
            await asyncio.to_thread(found.collect, BEGAN * SECOND, (BEGAN + 1) * SECOND)


def test_a_store_that_is_gone_is_one_line() -> None:
    with pytest.raises(TelemetryMissing, match="a store of telemetry failed: ConnectError"):
        Stores("http://127.0.0.1:1", "http://127.0.0.1:1", "http://127.0.0.1:1", MATCHER).collect(0, SECOND)
