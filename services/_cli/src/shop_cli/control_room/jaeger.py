"""Serves the part of Jaeger's HTTP API v3 that the storefront uses: trace search."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chassis.errors import InvalidArgument
from shop_cli.local.spans import Span, Value
from shop_cli.local.telemetry_store import TelemetryStore, TraceQuery

_KINDS = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}


def routes(telemetry: TelemetryStore) -> list[Route]:
    async def find_traces(request: Request) -> Response:
        try:
            query = _query(request)
        except (InvalidArgument, ValueError) as error:
            return _error(400, str(error))
        return _traces(span for found in telemetry.summaries(query) for span in telemetry.trace(found.trace_id))

    return [Route("/api/v3/traces", find_traces)]


def _query(request: Request) -> TraceQuery:
    """Parse a search's query parameters. Times are in RFC 3339 format; `attributes` is a JSON object."""
    given = {name.removeprefix("query."): value for name, value in request.query_params.items() if value}
    attributes = json.loads(given.get("attributes", "{}"))
    if not isinstance(attributes, dict):
        raise InvalidArgument.field("query.attributes", "must be a JSON object")
    return TraceQuery(
        service=given.get("service_name", ""),
        operation=given.get("operation_name", ""),
        attributes={name: str(value) for name, value in attributes.items()},
        since_nanos=_nanos(given.get("start_time_min", "1970-01-01T00:00:00Z")),
        until_nanos=_nanos(given.get("start_time_max", "2200-01-01T00:00:00Z")),
        limit=int(given.get("num_traces", 20)),
    )


def _nanos(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1e9)


def _traces(spans: Iterable[Span]) -> Response:
    """Return spans as OTLP JSON: ids in hex, enums as numbers, 64-bit integers as strings."""
    by_resource: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for span in spans:
        by_resource.setdefault((span.service, span.instance), []).append(_to_json(span))
    if not by_resource:
        return _error(404, "No traces found")
    resources = [
        {
            "resource": {"attributes": _attributes({"service.name": service, "service.instance.id": instance})},
            "scopeSpans": [{"scope": {}, "spans": found}],
        }
        for (service, instance), found in by_resource.items()
    ]
    return JSONResponse({"result": {"resourceSpans": resources}})


def _to_json(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": WireSpan.SpanKind.Value(f"SPAN_KIND_{span.kind}"),
        "startTimeUnixNano": str(span.started_nanos),
        "endTimeUnixNano": str(span.ended_nanos),
        "attributes": _attributes(span.attributes),
        "status": {"code": int(Status.STATUS_CODE_ERROR)} if span.failed else {},
    }


def _attributes(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {_KINDS[type(value)]: str(value) if type(value) is int else value}}
        for key, value in attributes.items()
        if value != ""
    ]


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"httpCode": status, "message": message}}, status)
