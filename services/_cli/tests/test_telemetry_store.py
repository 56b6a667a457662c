"""Stored traces: which ones are kept, found and summarized, and how Jaeger's API returns them."""

import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from starlette.applications import Starlette

from chassis.telemetry import semconv
from shop_cli.control_room import jaeger
from shop_cli.local.spans import tree_order
from shop_cli.local.telemetry_store import MAX_SPANS_OF_TRACE, TelemetryStore, TraceQuery

NOW = 1_800_000_000


def export(
    trace: int,
    *,
    span: int = 1,
    parent: int = 0,
    service: str = "cart",
    name: str = "shop.Cart/Get",
    milliseconds: float = 5,
    at: int = NOW,
    failed: bool = False,
    attributes: dict[str, str | int] | None = None,
) -> ExportTraceServiceRequest:
    end = at * 10**9
    wire = Span(
        trace_id=trace.to_bytes(16, "big"),
        span_id=span.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name,
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=end - int(milliseconds * 1e6),
        end_time_unix_nano=end,
        attributes=[KeyValue(key=key, value=_any(value)) for key, value in (attributes or {}).items()],
        status=Status(code=Status.STATUS_CODE_ERROR if failed else Status.STATUS_CODE_OK),
    )
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=service))])
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=[wire])])]
    )


def _any(value: str | int) -> AnyValue:
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)


def ids(store: TelemetryStore, query: TraceQuery | None = None) -> list[int]:
    return [int(found.trace_id, 16) for found in store.summaries(query or TraceQuery())]


@pytest.mark.parametrize("failed", [False, True])
def test_traces_beyond_the_quota_of_their_kind_are_dropped_oldest_first(failed: bool) -> None:
    store = TelemetryStore(max_important=2 if failed else 0, max_others=0 if failed else 2)
    for trace in (1, 2, 3):
        store.add(export(trace, failed=failed, at=NOW + trace))
    assert ids(store) == [3, 2]


@pytest.mark.parametrize(("failed", "attributes"), [(True, {}), (False, {semconv.ORDER_ID: "o-1"})])
def test_orders_and_errors_outlive_page_views_with_all_their_spans(failed: bool, attributes: dict[str, str]) -> None:
    store = TelemetryStore(max_important=3, max_others=2)
    store.add(export(1, span=2, parent=1))  # arrives before what makes the trace important
    store.add(export(1, failed=failed, attributes={**attributes}))
    for trace in (2, 3, 4, 5):
        store.add(export(trace))
    store.add(export(1, span=3, parent=1))
    assert len(store.trace(f"{1:032x}")) == 3
    assert store.stored == (1, 2)


def test_spans_beyond_the_maximum_of_a_trace_are_dropped() -> None:
    store = TelemetryStore()
    for span in range(MAX_SPANS_OF_TRACE + 1):
        store.add(export(1, span=span + 1))
    assert len(store.trace(f"{1:032x}")) == MAX_SPANS_OF_TRACE


@pytest.mark.parametrize(("sort", "expected"), [("started", [3, 2, 1]), ("duration", [1, 3, 2]), ("spans", [2, 1, 3])])
def test_traces_are_sorted_in_whatever_order_they_arrive(sort: str, expected: list[int]) -> None:
    store = TelemetryStore()
    for trace, milliseconds, spans in ((3, 20, 1), (1, 30, 2), (2, 10, 3)):
        for span in range(spans):
            store.add(export(trace, span=span + 1, at=NOW + trace, milliseconds=milliseconds))
    assert ids(store, TraceQuery(sort=sort)) == expected


def test_a_query_of_a_readiness_check_is_no_trace() -> None:
    store = TelemetryStore()
    store.add(export(1, attributes={"db.system.name": "sqlite"}))
    assert store.summaries(TraceQuery()) == []


@pytest.mark.parametrize(
    "query",
    [
        TraceQuery(service="payment"),
        TraceQuery(operation="shop.Payment/Charge"),
        TraceQuery(failed=True),
        TraceQuery(min_milliseconds=50),
        TraceQuery(attributes={semconv.ORDER_ID: "o-1"}),
        TraceQuery(since_nanos=(NOW + 5) * 10**9),
    ],
)
def test_traces_are_found_by_each_property(query: TraceQuery) -> None:
    store = TelemetryStore()
    store.add(export(1))
    store.add(
        export(
            2,
            service="payment",
            name="shop.Payment/Charge",
            failed=True,
            milliseconds=100,
            at=NOW + 10,
            attributes={semconv.ORDER_ID: "o-1"},
        )
    )
    assert ids(store, query) == [2]


@pytest.mark.parametrize(("age_seconds", "listed"), [(0, []), (5, [1])])
def test_a_trace_is_listed_once_its_beginning_can_no_longer_arrive(age_seconds: int, listed: list[int]) -> None:
    store = TelemetryStore()
    store.add(export(1, span=2, parent=1, at=int(time.time()) - age_seconds))
    assert ids(store) == listed


def test_a_summary_describes_the_root_of_the_trace_and_names_its_order() -> None:
    store = TelemetryStore()
    store.add(export(1, span=2, parent=1, service="payment", failed=True, milliseconds=90))
    store.add(export(1, span=1, service="checkout", milliseconds=100, attributes={semconv.ORDER_ID: "o-1"}))
    (summary,) = store.summaries(TraceQuery())
    described = (summary.service, summary.milliseconds, summary.spans, summary.failed, summary.order_id)
    assert described == ("checkout", 100, 2, True, "o-1")


def test_a_tree_has_parents_before_children_and_siblings_by_their_start() -> None:
    store = TelemetryStore()
    for span, parent, milliseconds in ((1, 0, 9), (3, 1, 5), (2, 1, 7), (4, 2, 6)):
        store.add(export(1, span=span, parent=parent, milliseconds=milliseconds))
    assert [(depth, int(span.span_id)) for depth, span in tree_order(store.trace(f"{1:032x}"))] == [
        (0, 1),
        (1, 2),
        (2, 4),
        (1, 3),
    ]


# The part of Jaeger's HTTP API v3.


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    telemetry = TelemetryStore()
    attributes: dict[str, str | int] = {"shop.order.id": "o-1", "shop.order.attempt": 2}
    name = "shop.CheckoutService/PlaceOrder"
    telemetry.add(
        export(1, span=2, service="checkout", name=name, milliseconds=100, failed=True, attributes=attributes)
    )
    transport = httpx2.ASGITransport(Starlette(routes=jaeger.routes(telemetry)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


async def test_a_trace_is_returned_as_otlp_json(client: httpx2.AsyncClient) -> None:
    body = (await client.get("/api/v3/traces")).json()
    (resource,) = body["result"]["resourceSpans"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "checkout"}}]
    assert resource["scopeSpans"][0]["spans"] == [
        {
            "traceId": f"{1:032x}",
            "spanId": "0000000000000002",
            "parentSpanId": "",
            "name": "shop.CheckoutService/PlaceOrder",
            "kind": 2,
            "startTimeUnixNano": "1799999999900000000",
            "endTimeUnixNano": "1800000000000000000",
            "attributes": [
                {"key": "shop.order.id", "value": {"stringValue": "o-1"}},
                {"key": "shop.order.attempt", "value": {"intValue": "2"}},
            ],
            "status": {"code": 2},
        }
    ]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"query.service_name": "checkout", "query.attributes": '{"shop.order.id": "o-1"}'}, 200),
        ({"query.operation_name": "shop.CheckoutService/PlaceOrder"}, 200),
        ({"query.start_time_min": "2027-01-15T07:59:59Z", "query.start_time_max": "2027-01-15T08:00:00.5Z"}, 200),
        ({"query.service_name": "cart"}, 404),
        ({"query.attributes": '{"shop.order.id": "o-2"}'}, 404),
        ({"query.start_time_min": "2028-01-01T00:00:00Z"}, 404),
        ({"query.attributes": "order"}, 400),
        ({"query.attributes": "[]"}, 400),
        ({"query.start_time_min": "yesterday"}, 400),
        ({"query.num_traces": "many"}, 400),
    ],
)
async def test_traces_are_searched_by_what_they_have(
    client: httpx2.AsyncClient, query: dict[str, str], status: int
) -> None:
    assert (await client.get("/api/v3/traces", params=query)).status_code == status
