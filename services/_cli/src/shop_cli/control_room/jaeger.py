"""Serves the part of Jaeger's HTTP API v3 that the storefront uses: finding an order's trace."""

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Status
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chassis.errors import InvalidArgument
from shop_cli.control_room.api import number
from shop_cli.local.spans import Span
from shop_cli.local.telemetry_store import TelemetryStore, TraceQuery


def routes(telemetry: TelemetryStore) -> list[Route]:
    async def find_traces(request: Request) -> Response:
        found = telemetry.summaries(_query(request))
        spans = [_to_json(span) for summary in found for span in telemetry.trace(summary.trace_id)]
        return JSONResponse({"result": {"resourceSpans": spans}})

    return [Route("/api/v3/traces", find_traces)]


def _query(request: Request) -> TraceQuery:
    """Parse a search, ignoring its period: an order's id finds its trace. Raise InvalidArgument if it is invalid."""
    given = {name.removeprefix("query."): value for name, value in request.query_params.items()}
    try:
        attributes = {name: str(value) for name, value in json.loads(given.get("attributes", "{}")).items()}
    except (ValueError, AttributeError) as error:
        raise InvalidArgument.field("query.attributes", "must be a JSON object") from error
    return TraceQuery(
        service=given.get("service_name", ""),
        operation=given.get("operation_name", ""),
        attributes=attributes,
        limit=int(number(given.get("num_traces"), "query.num_traces", 20.0)),
    )


def _to_json(span: Span) -> dict[str, Any]:
    """Return a span with its resource as OTLP JSON: ids in hex, 64-bit integers and attribute values as strings."""
    fields = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "startTimeUnixNano": str(span.started_nanos),
        "endTimeUnixNano": str(span.ended_nanos),
        "attributes": _attributes(span.attributes),
        "status": {"code": int(Status.STATUS_CODE_ERROR)} if span.failed else {},
    }
    resource = {"attributes": _attributes({"service.name": span.service})}
    return {"resource": resource, "scopeSpans": [{"spans": [fields]}]}


def _attributes(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": str(value)}} for key, value in attributes.items()]
