import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import httpx2
import orjson
import structlog

from chassis.telemetry import semconv
from storefront_service.domain import Span, Trace

log = structlog.get_logger()

_MAX_BYTES = 4 * 1024 * 1024
_MAX_TRACES = 50
_MAX_SPANS = 200
# How far to search before and after an order's creation: its trace begins slightly earlier, and clocks differ.
_BEFORE, _AFTER = timedelta(seconds=30), timedelta(seconds=30)
_FAILED = {2, "STATUS_CODE_ERROR"}


class TracesClient:
    """Reads order traces through Jaeger's HTTP API v3."""

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._client = httpx2.AsyncClient(base_url=url, timeout=timeout_seconds)
        self.aclose = self._client.aclose

    async def of_order(self, order_id: str, created_at: datetime) -> Trace | None:
        """Return the trace of the request that placed an order, or None if Jaeger has none, is slow or fails."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._search(order_id, created_at)
        except (httpx2.HTTPError, TimeoutError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Log only the error's type: its text may quote the URL, which may contain a password.
            log.info("page without a trace", error=type(error).__name__)
            return None

    async def _search(self, order_id: str, created_at: datetime) -> Trace | None:
        query = {
            "query.service_name": "checkout",
            "query.operation_name": "shop.CheckoutService/PlaceOrder",
            # Some Jaeger releases ignore this filter and return all traces in the period, so `_trace_of` filters again.
            "query.attributes": orjson.dumps({semconv.ORDER_ID: order_id}).decode(),
            "query.start_time_min": (created_at - _BEFORE).isoformat(),
            "query.start_time_max": (created_at + _AFTER).isoformat(),
            "query.num_traces": str(_MAX_TRACES),
        }
        async with self._client.stream("GET", "/api/v3/traces", params=query) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise ValueError("the response is too long")
        return _trace_of(order_id, list(_spans(orjson.loads(body))))


def _spans(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the exported spans, each with the name of its service."""
    for resource in document["result"]["resourceSpans"]:
        service = str(_attributes(resource["resource"]).get("service.name", ""))
        for scope in resource["scopeSpans"]:
            yield from ({**span, "service": service} for span in scope["spans"])


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {found["key"]: next(iter(found["value"].values()), "") for found in holder.get("attributes", ())}


def _start(span: Mapping[str, Any]) -> int:
    return int(span["startTimeUnixNano"])


def _trace_of(order_id: str, spans: Sequence[Mapping[str, Any]]) -> Trace | None:
    """Return the earliest trace with a span for the order. Later traces belong to recoveries and repeated requests."""
    marked = [span for span in spans if _attributes(span).get(semconv.ORDER_ID) == order_id]
    if not marked:
        return None
    trace_id = str(min(marked, key=_start)["traceId"])
    return Trace(trace_id, tuple(_waterfall([span for span in spans if span["traceId"] == trace_id]))[:_MAX_SPANS])


def _waterfall(spans: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield spans depth first, and siblings by start time. A span whose parent is missing becomes a root."""
    by_id = {span["spanId"]: span for span in sorted(spans, key=_start)}
    children: dict[str, list[Mapping[str, Any]]] = {}
    for span in by_id.values():
        parent_id = span.get("parentSpanId", "")
        children.setdefault(parent_id if parent_id in by_id else "", []).append(span)
    begin = min(map(_start, by_id.values()))
    pending = [(span, 0) for span in reversed(children.get("", []))]
    while pending:
        span, depth = pending.pop()
        pending += [(child, depth + 1) for child in reversed(children.get(span["spanId"], []))]
        duration = max(0, int(span["endTimeUnixNano"]) - _start(span))
        failed = span.get("status", {}).get("code") in _FAILED
        yield Span(span["name"], span["service"], (_start(span) - begin) / 1e6, duration / 1e6, depth, failed)
