import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette

from chassis.telemetry import semconv
from shop_cli.control_room import jaeger
from shop_cli.local.spans import Span, Value, tree_order
from shop_cli.local.telemetry_store import MAX_SPANS_OF_TRACE, TelemetryStore, TraceQuery
from shop_kit.spans import NOW, span

ORDER = {semconv.ORDER_ID: "o-1"}


def filled(*spans: Span, max_important: int = 10**6, max_others: int = 10**6) -> TelemetryStore:
    store = TelemetryStore(max_important, max_others)
    for found in spans:
        store.store(found)
    return store


def ids(store: TelemetryStore, query: TraceQuery | None = None) -> str:
    """Return the matching traces' ids, which are single characters, as one string."""
    return "".join(found.trace_id for found in store.summaries(query or TraceQuery()))


@pytest.mark.parametrize("failed", [False, True])
def test_traces_beyond_the_quota_of_their_kind_are_dropped_oldest_first(failed: bool) -> None:
    spans = [span(trace_id=f"{number}", failed=failed, ended=NOW + number) for number in (1, 2, 3)]
    assert ids(filled(*spans, max_important=2 * failed, max_others=2 * (not failed))) == "32"


@pytest.mark.parametrize("important", [span(failed=True), span(attributes=ORDER)])
def test_orders_and_errors_outlive_page_views_with_all_their_spans(important: Span) -> None:
    before, after = (span(span_id=span_id, parent_id="1") for span_id in "23")
    store = filled(before, important, *(span(trace_id=letter) for letter in "abcd"), after, max_others=2)
    assert len(store.trace("1")) == 3
    assert store.stored == (1, 2)


def test_spans_beyond_the_maximum_of_a_trace_are_dropped() -> None:
    store = filled(*(span(span_id=f"{number}") for number in range(MAX_SPANS_OF_TRACE + 1)))
    assert len(store.trace("1")) == MAX_SPANS_OF_TRACE


@pytest.mark.parametrize(("sort", "expected"), [("started", "321"), ("duration", "132"), ("spans", "213")])
def test_traces_are_sorted_in_whatever_order_they_arrive(sort: str, expected: str) -> None:
    store = filled(
        *(
            span(trace_id=f"{trace}", span_id=f"{number}", ended=NOW + trace, milliseconds=milliseconds)
            for trace, milliseconds, spans in ((3, 20, 1), (1, 30, 2), (2, 10, 3))
            for number in range(spans)
        )
    )
    assert ids(store, TraceQuery(sort=sort)) == expected


def test_a_query_of_a_readiness_check_is_no_trace() -> None:
    assert ids(filled(span(attributes={semconv.DB_SYSTEM: "sqlite"}))) == ""


@pytest.mark.parametrize(
    "query",
    [
        TraceQuery(service="payment"),
        TraceQuery(operation="shop.Payment/Charge"),
        TraceQuery(failed=True),
        TraceQuery(min_milliseconds=50),
        TraceQuery(attributes=ORDER),
        TraceQuery(ordered=True),
    ],
)
def test_traces_are_found_by_each_property(query: TraceQuery) -> None:
    name, ended = "shop.Payment/Charge", NOW + 10
    found = span("payment", name, trace_id="2", attributes=ORDER, failed=True, milliseconds=100, ended=ended)
    assert ids(filled(span(), found), query) == "2"


@pytest.mark.parametrize(("age_seconds", "listed"), [(0, ""), (5, "1")])
def test_a_trace_is_listed_once_its_beginning_can_no_longer_arrive(age_seconds: int, listed: str) -> None:
    assert ids(filled(span(span_id="2", parent_id="1", ended=time.time() - age_seconds))) == listed


def test_a_summary_describes_the_root_of_the_trace_and_names_its_order() -> None:
    call = span("payment", span_id="2", parent_id="1", failed=True, milliseconds=90)
    (summary,) = filled(call, span("checkout", milliseconds=100, attributes=ORDER)).summaries(TraceQuery())
    described = (summary.service, summary.milliseconds, summary.spans, summary.failed, summary.order_id)
    assert described == ("checkout", 100, 2, True, "o-1")


def test_a_tree_has_parents_before_children_siblings_by_their_start_and_roots_without_a_parent() -> None:
    spans = [
        span(span_id=span_id, parent_id=parent_id, milliseconds=milliseconds)
        for span_id, parent_id, milliseconds in (("1", "missing", 9), ("3", "1", 5), ("2", "1", 7), ("4", "2", 6))
    ]
    assert [(depth, found.span_id) for depth, found in tree_order(spans)] == [(0, "1"), (1, "2"), (2, "4"), (1, "3")]


# Tests of Jaeger's HTTP API.


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    attributes: dict[str, Value] = {**ORDER, "shop.order.attempt": 2}
    name = "shop.CheckoutService/PlaceOrder"
    stored = filled(span("checkout", name, span_id="2", milliseconds=100, failed=True, attributes=attributes))
    transport = httpx2.ASGITransport(Starlette(routes=jaeger.routes(stored)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


async def test_a_trace_is_returned_as_otlp_json(client: httpx2.AsyncClient) -> None:
    body = (await client.get("/api/v3/traces")).json()
    (resource,) = body["result"]["resourceSpans"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "checkout"}}]
    assert resource["scopeSpans"][0]["spans"] == [
        {
            "traceId": "1",
            "spanId": "2",
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
        ({"query.service_name": "cart"}, 404),
        ({"query.attributes": '{"shop.order.id": "o-2"}'}, 404),
        ({"query.attributes": "order"}, 400),
        ({"query.attributes": "[]"}, 400),
        ({"query.num_traces": "many"}, 400),
    ],
)
async def test_traces_are_searched_by_what_they_have(
    client: httpx2.AsyncClient, query: dict[str, str], status: int
) -> None:
    assert (await client.get("/api/v3/traces", params=query)).status_code == status
