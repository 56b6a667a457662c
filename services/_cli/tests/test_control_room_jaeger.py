"""The subset of Jaeger's HTTP API v3."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from starlette.applications import Starlette

from shop_cli.control_room import jaeger
from shop_cli.local.telemetry_store import TelemetryStore

TRACE_ID = "0" * 31 + "1"


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    telemetry = TelemetryStore()
    attributes = [
        KeyValue(key="shop.order.id", value=AnyValue(string_value="o-1")),
        KeyValue(key="shop.order.attempt", value=AnyValue(int_value=2)),
    ]
    span = Span(
        trace_id=bytes.fromhex(TRACE_ID),
        span_id=(2).to_bytes(8, "big"),
        name="shop.CheckoutService/PlaceOrder",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=10**18,
        end_time_unix_nano=10**18 + 10**8,
        attributes=attributes,
        status=Status(code=Status.STATUS_CODE_ERROR),
    )
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="checkout"))])
    group = ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=[span])])
    telemetry.add(ExportTraceServiceRequest(resource_spans=[group]))
    transport = httpx2.ASGITransport(Starlette(routes=jaeger.routes(telemetry)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


async def test_a_trace_is_returned_as_otlp_json(client: httpx2.AsyncClient) -> None:
    body = (await client.get(f"/api/v3/traces/{TRACE_ID}")).json()
    (resource,) = body["result"]["resourceSpans"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "checkout"}}]
    assert resource["scopeSpans"][0]["spans"] == [
        {
            "traceId": TRACE_ID,
            "spanId": "0000000000000002",
            "parentSpanId": "",
            "name": "shop.CheckoutService/PlaceOrder",
            "kind": 2,
            "startTimeUnixNano": "1000000000000000000",
            "endTimeUnixNano": "1000000000100000000",
            "attributes": [
                {"key": "shop.order.id", "value": {"stringValue": "o-1"}},
                {"key": "shop.order.attempt", "value": {"intValue": "2"}},
            ],
            "status": {"code": 2},
        }
    ]


async def test_an_unknown_trace_is_not_found(client: httpx2.AsyncClient) -> None:
    response = await client.get("/api/v3/traces/abc")
    assert (response.status_code, response.json()["error"]["httpCode"]) == (404, 404)


@pytest.mark.parametrize(
    "query",
    [
        {"query.service_name": "checkout", "query.attributes": '{"shop.order.id": "o-1"}'},
        {"query.operation_name": "shop.CheckoutService/PlaceOrder"},
        {"query.start_time_min": "2001-09-09T01:46:39Z", "query.start_time_max": "2001-09-09T01:46:41.5Z"},
    ],
)
async def test_a_trace_is_found_by_what_it_has(client: httpx2.AsyncClient, query: dict[str, str]) -> None:
    assert (await client.get("/api/v3/traces", params=query)).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        {"query.service_name": "cart"},
        {"query.attributes": '{"shop.order.id": "o-2"}'},
        {"query.start_time_min": "2020-01-01T00:00:00Z"},
    ],
)
async def test_other_traces_are_not_found(client: httpx2.AsyncClient, query: dict[str, str]) -> None:
    assert (await client.get("/api/v3/traces", params=query)).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {"query.attributes": "order"},
        {"query.attributes": "[]"},
        {"query.start_time_min": "yesterday"},
        {"query.search_depth": "many"},
    ],
)
async def test_a_malformed_search_is_refused(client: httpx2.AsyncClient, query: dict[str, str]) -> None:
    assert (await client.get("/api/v3/traces", params=query)).status_code == 400
