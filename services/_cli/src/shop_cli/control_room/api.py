"""The control room's JSON API. Errors are objects with a `reason` and a `message`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chassis.errors import InvalidArgument, NotFound
from chassis.telemetry import semconv
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.spans import Span
from shop_cli.local.telemetry_store import SORT_KEYS, TraceQuery

_MAX_LISTED = 5_000


def routes(room: ControlRoom) -> list[Route]:
    async def status(_request: Request) -> Response:
        return JSONResponse(await describe(room))

    async def find_traces(request: Request) -> Response:
        found = room.telemetry.summaries(trace_query(request))
        return JSONResponse([asdict(summary) for summary in found])

    async def get_trace(request: Request) -> Response:
        return JSONResponse([asdict(span) for span in require_trace(room, request.path_params["trace_id"])])

    return [Route("/api/status", status), Route("/api/traces", find_traces), Route("/api/traces/{trace_id}", get_trace)]


async def describe(room: ControlRoom) -> dict[str, Any]:
    return {
        "services": room.services(),
        "reconciliation": await room.reconciler.read(),
        "customers": room.customers.rate,
        "storefront": room.run.url("storefront"),
        "telemetry_elsewhere": room.telemetry_elsewhere,
    }


def require_trace(room: ControlRoom, trace_id: str) -> Sequence[Span]:
    """Return a trace's spans. Raise NotFound if none are stored."""
    spans = room.telemetry.trace(trace_id)
    if not spans:
        message = f"the trace {trace_id} is unknown or no longer stored: page views are dropped first"
        raise NotFound(message, reason="TRACE_NOT_FOUND")
    return spans


def trace_query(request: Request) -> TraceQuery:
    """Parse the query parameters of a trace search. Raise InvalidArgument if a parameter is invalid."""
    given = request.query_params
    order_id = given.get("order", "").strip()
    sort = given.get("sort", "started")
    if sort not in SORT_KEYS:
        raise InvalidArgument.field("sort", f"must be one of {', '.join(SORT_KEYS)}")
    return TraceQuery(
        service=given.get("service", ""),
        attributes={semconv.ORDER_ID: order_id} if order_id else {},
        min_milliseconds=number(given.get("min_ms"), "min_ms", 0.0),
        failed=bool(given.get("errors")),
        ordered=bool(given.get("orders")),
        sort=sort,
        limit=int(min(_MAX_LISTED, number(given.get("limit"), "limit", 50.0))),
    )


def number(text: str | None, field: str, default: float) -> float:
    if not text:
        return default
    if not (text.isascii() and text.replace(".", "", 1).isdecimal()):
        raise InvalidArgument.field(field, "must be a number that is not negative")
    return float(text)
