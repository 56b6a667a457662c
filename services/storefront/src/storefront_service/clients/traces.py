"""Traces of orders, from a store with Jaeger's HTTP API v3."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
# An order's trace begins just before the order is recorded; clocks of two machines differ a little.
_BEFORE, _AFTER = timedelta(seconds=30), timedelta(seconds=30)
_FAILED = {2, "STATUS_CODE_ERROR"}


@dataclass(frozen=True, slots=True)
class _RawSpan:
    """A span as it was exported; times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    end: int
    failed: bool
    order_id: str


class TracesClient:
    """Reads traces. Without a URL there are none.

    Args:
        url: base URL such as `http://jaeger:16686`, with user and password if the store requires them.
        timeout_seconds: limit for a whole request.
    """

    def __init__(self, url: str | None, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._client = httpx2.AsyncClient(base_url=url, timeout=timeout_seconds) if url else None

    @property
    def available(self) -> bool:
        return self._client is not None

    async def of_order(self, order_id: str, created_at: datetime) -> Trace | None:
        """Return the trace in which an order was placed; None if it is not found, or the store is slow or fails."""
        if self._client is None:
            return None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                found = await self._search(self._client, order_id, created_at)
        except (httpx2.HTTPError, TimeoutError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Only the type: the text may quote the URL with its password.
            log.info("page without a trace", error=type(error).__name__)
            return None
        return found

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _search(self, client: httpx2.AsyncClient, order_id: str, created_at: datetime) -> Trace | None:
        query = {
            "query.service_name": "checkout",
            "query.operation_name": "shop.CheckoutService/PlaceOrder",
            # Releases that do not support it return all traces of the time, so the result is searched in any case.
            "query.attributes": json.dumps({semconv.ORDER_ID: order_id}),
            "query.start_time_min": (created_at - _BEFORE).isoformat(),
            "query.start_time_max": (created_at + _AFTER).isoformat(),
            "query.num_traces": str(_MAX_TRACES),
        }
        async with client.stream("GET", "/api/v3/traces", params=query) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise ValueError("the response is too long")
        return _trace_of(order_id, list(_spans(orjson.loads(body))))


def _spans(document: Mapping[str, Any]) -> Iterator[_RawSpan]:
    for resource in document["result"]["resourceSpans"]:
        service = str(_attributes(resource["resource"]).get("service.name", ""))
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield _RawSpan(
                    trace_id=span["traceId"],
                    span_id=span["spanId"],
                    parent_id=span.get("parentSpanId", ""),
                    name=span["name"],
                    service=service,
                    start=int(span["startTimeUnixNano"]),
                    end=int(span["endTimeUnixNano"]),
                    failed=span.get("status", {}).get("code") in _FAILED,
                    order_id=str(_attributes(span).get(semconv.ORDER_ID, "")),
                )


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {found["key"]: next(iter(found["value"].values()), "") for found in holder.get("attributes", ())}


def _trace_of(order_id: str, spans: list[_RawSpan]) -> Trace | None:
    """Return the earliest trace with a span of the order: recovery and repeats have traces of their own."""
    marked = [span for span in spans if span.order_id == order_id]
    if not marked:
        return None
    trace_id = min(marked, key=lambda span: span.start).trace_id
    return Trace(trace_id, tuple(_waterfall([span for span in spans if span.trace_id == trace_id]))[:_MAX_SPANS])


def _waterfall(spans: Iterable[_RawSpan]) -> Iterator[Span]:
    """Yield spans depth first, children by their start. A span whose parent is missing is a root."""
    ordered = sorted({span.span_id: span for span in spans}.values(), key=lambda span: span.start)
    ids = {span.span_id for span in ordered}
    children: dict[str, list[_RawSpan]] = {}
    for span in ordered:
        children.setdefault(span.parent_id if span.parent_id in ids else "", []).append(span)
    begin = ordered[0].start
    pending = [(span, 0) for span in reversed(children.get("", []))]
    while pending:
        span, depth = pending.pop()
        pending += [(child, depth + 1) for child in reversed(children.get(span.span_id, []))]
        duration = max(0, span.end - span.start)
        yield Span(span.name, span.service, (span.start - begin) / 1e6, duration / 1e6, depth, span.failed)
