"""Tests of order traces, with a fake store that serves the parts of Jaeger's HTTP API v3 that pages use."""

import base64
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shop_kit.http_serving import serve_http
from shop_kit.storefront import Storefront, storefront

TRACE = "0af7651916cd43dd8448eb211c80319c"
Answer = Callable[[Request, str], Response]


def span(number: int, parent: int | None, start_ms: int, end_ms: int, **attributes: str) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        **({"parentSpanId": f"{parent:016x}"} if parent else {}),
        "name": f"shop.CheckoutService/Call{number}",
        "startTimeUnixNano": str(start_ms * 1_000_000),
        "endTimeUnixNano": str(end_ms * 1_000_000),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
        "status": {"code": 2} if number == 3 else {},
    }


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    service = {"key": "service.name", "value": {"stringValue": "checkout"}}
    scopes = [{"scope": {"name": "shop"}, "spans": list(spans)}]
    return {"result": {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": scopes}]}}


def order_trace(_request: Request, order_id: str) -> Response:
    marked = {"shop.order.id": order_id}
    other = {**span(9, None, 0, 5), "traceId": "f" * 32}
    return JSONResponse(document(span(3, 1, 130, 150), other, span(1, None, 100, 200, **marked), span(2, 1, 110, 125)))


def begun_trace(_request: Request, order_id: str) -> Response:
    return JSONResponse(document(span(1, None, 100, 200, **{"shop.order.id": order_id})))


def no_trace(_request: Request, _order_id: str) -> Response:
    return JSONResponse(document())


# Responses from failing trace stores.
FAILURES = {
    "malformed": JSONResponse({"result": {"resourceSpans": [{"resource": {}}]}}),
    "not JSON": Response("<html>"),
    "not found": JSONResponse({"error": {"message": "no traces found"}}, 404),
    "too long": Response(b"x" * 5_000_000),
}


@asynccontextmanager
async def shop_with_traces(answer: Answer) -> AsyncIterator[tuple[Storefront, list[Request]]]:
    """Yield a storefront and the requests to its trace store, which calls `answer` with the latest order."""
    requests: list[Request] = []
    shops: list[Storefront] = []

    async def traces(request: Request) -> Response:
        requests.append(request)
        return answer(request, next(reversed(shops[0].backends.checkout.orders)))

    store = Starlette(routes=[Route("/api/v3/traces", traces)])
    async with serve_http(store) as url, storefront(traces_url=url.replace("//", "//user:token@")) as shop:
        shops.append(shop)
        yield shop, requests


async def order_page(shop: Storefront) -> str:
    async with shop.visitor() as visitor:
        return await visitor.page((await visitor.order()).headers["location"])


async def test_the_page_of_an_order_shows_its_trace_as_a_waterfall() -> None:
    async with shop_with_traces(order_trace) as (shop, requests):
        page = await order_page(shop)
    calls = [page.index(f"CheckoutService/Call{number}") for number in (1, 2, 3)]
    assert calls == sorted(calls)
    assert "Call9" not in page
    assert f"{TRACE}</code>: 3 spans, 100 ms" in page
    assert '<rect x="100.0" width="150.0"' in page  # the bar starts where the span does, and is as long
    assert page.count('class="failed"') == 1
    query = requests[0].query_params
    assert query["query.service_name"] == "checkout"
    assert json.loads(query["query.attributes"]) == {"shop.order.id": next(iter(shop.backends.checkout.orders))}
    assert datetime.fromisoformat(query["query.start_time_min"]) < datetime.now(UTC)
    assert requests[0].headers["authorization"] == "Basic " + base64.b64encode(b"user:token").decode()


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_page_is_shown_without_a_trace(failure: str) -> None:
    async with shop_with_traces(lambda _request, _order_id: FAILURES[failure]) as (shop, _):
        assert "The trace arrives a few seconds after the order, if the order was sampled." in await order_page(shop)


async def test_the_trace_of_an_earlier_order_is_no_longer_stored() -> None:
    async with shop_with_traces(no_trace) as (shop, _), shop.visitor() as visitor:
        path = (await visitor.order()).headers["location"]
        for order in shop.backends.checkout.orders.values():
            order.order.created_at.FromSeconds(int(time.time()) - 120)
        page = await visitor.page(path)
    assert "no longer stored" in page
    assert "arrives" not in page
    assert "data-events" not in page


@pytest.mark.parametrize(
    ("settings", "shown"), [({"traces_url": "http://127.0.0.1:1"}, "Complete"), ({}, "No trace store is configured.")]
)
async def test_the_page_is_shown_without_a_store_of_traces(settings: dict[str, Any], shown: str) -> None:
    async with storefront(**settings) as shop:
        assert shown in await order_page(shop)


async def test_a_trace_that_arrives_later_and_grows_is_streamed_until_it_is_complete() -> None:
    answers = iter([no_trace, no_trace, begun_trace])

    def in_turn(request: Request, order_id: str) -> Response:
        return next(answers, order_trace)(request, order_id)

    async with shop_with_traces(in_turn) as (shop, _), shop.visitor() as visitor:
        path = (await visitor.order()).headers["location"]
        assert "The trace arrives a few seconds after the order" in await visitor.page(path)
        stream = await visitor.page(f"{path}/events")
    assert re.findall(r"(\d) spans?", stream) == ["1", "3"]
    assert [line for line in stream.splitlines() if line.startswith("event:")][-2:] == ["event: trace", "event: end"]
