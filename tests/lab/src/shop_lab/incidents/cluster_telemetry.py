"""Telemetry of a run on a cluster, from the APIs of Prometheus, Jaeger and Loki."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from typing import Any

import httpx2
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from chassis.telemetry.semconv import METRICS, Metric
from shop_cli.local.otlp_receiver import spans_of
from shop_cli.local.spans import Span
from shop_lab.incidents.own_time import Columns
from shop_lab.incidents.telemetry import LogRecord, Telemetry, TelemetryMissing, column

_SECOND = 10**9
_TIMEOUT_SECONDS = 60.0
_MAX_LINES = 5_000  # of a response of Loki
# A search holds its traces in memory, of which Jaeger has little.
_MAX_TRACES, _SLICE_NANOS, _SHORTEST_NANOS = 100, 20 * _SECOND, _SECOND // 10
_RESOURCE = ("service_", "k8s_", "telemetry_", "severity_", "scope_", "observed_", "flags", "trace_id", "span_id")


@dataclass(frozen=True)
class Stores:
    """The stores of a release's telemetry.

    Attributes:
        prometheus, jaeger, loki: base URLs.
        matcher: of PromQL and LogQL, which selects the release.
    """

    prometheus: str
    jaeger: str
    loki: str
    matcher: str

    def collect(self, since_nanos: int, until_nanos: int) -> Telemetry:
        """Return the telemetry of a window. Raise TelemetryMissing if a store fails or has no span of that time."""
        window = (since_nanos, until_nanos)
        with httpx2.Client(timeout=_TIMEOUT_SECONDS) as client:
            try:
                found = Telemetry(
                    list(self._spans(client, *window)),
                    list(self._logs(client, *window)),
                    self._metrics(client, *window),
                )
            except (httpx2.HTTPError, ValueError, KeyError) as error:
                raise TelemetryMissing(f"a store of telemetry failed: {type(error).__name__} {error}") from error
        if not found.spans:
            raise TelemetryMissing(
                "Jaeger has no trace of the run: is everything sampled, and its memory large enough?"
            )
        return found.between(*window)

    def _spans(self, client: httpx2.Client, since: int, until: int) -> Iterator[Span]:
        response = client.get(f"{self.jaeger}/api/v3/services").raise_for_status()
        for service in response.json()["services"]:
            for start in range(since, until, _SLICE_NANOS):
                yield from self._slice(client, service, start, min(start + _SLICE_NANOS, until))

    def _slice(self, client: httpx2.Client, service: str, since: int, until: int) -> Iterator[Span]:
        """Yield the spans of a time's traces; halve it if there are more than one response has."""
        times = {"query.start_time_min": _rfc3339(since), "query.start_time_max": _rfc3339(until)}
        query = {"query.service_name": service, **times, "query.num_traces": str(_MAX_TRACES)}
        response = client.get(f"{self.jaeger}/api/v3/traces", params=query)
        if response.status_code == httpx2.codes.NOT_FOUND:  # no traces
            return
        spans = _parse(response.raise_for_status().json()["result"])
        if len({span.trace_id for span in spans}) >= _MAX_TRACES and until - since > _SHORTEST_NANOS:
            middle = (since + until) // 2
            yield from self._slice(client, service, since, middle)
            yield from self._slice(client, service, middle, until)
        else:
            yield from spans

    def _logs(self, client: httpx2.Client, since: int, until: int) -> Iterator[LogRecord]:
        length = _MAX_LINES
        while length == _MAX_LINES:
            options = {"limit": str(_MAX_LINES), "direction": "forward"}
            query = {"query": f"{{{self.matcher}}}", "start": str(since), "end": str(until), **options}
            found = client.get(f"{self.loki}/loki/api/v1/query_range", params=query).raise_for_status().json()
            records = [
                _log(stream["stream"], *line[:2]) for stream in found["data"]["result"] for line in stream["values"]
            ]
            yield from records
            length = len(records)
            since = max((record.time_nanos + 1 for record in records), default=until)

    def _metrics(self, client: httpx2.Client, since: int, until: int) -> Columns:
        columns: Columns = {}
        times = {"start": str(since // _SECOND), "end": str(until // _SECOND), "step": "1"}
        for metric in METRICS:
            for suffix, query in _queries(metric, self.matcher):
                given = {"query": query, **times}
                found = client.get(f"{self.prometheus}/api/v1/query_range", params=given).raise_for_status().json()
                for series in found["data"]["result"]:
                    values = {int(time): float(value) for time, value in series["values"]}
                    name = column(series["metric"].get("service_name", ""), metric.name) + suffix
                    columns[name] = {time: value for time, value in values.items() if not isnan(value)}
        return columns


def _queries(metric: Metric, matcher: str) -> Iterator[tuple[str, str]]:
    """Yield the suffixes of a metric's columns with their queries: the same values as of a local recording."""
    *_, first = metric.series[:1]
    if metric.kind == "histogram":
        _, count, total = (_rate(series, matcher) for series in metric.series)
        yield from (("", f"{total} / {count}"), ("-count", count))
    elif metric.kind == "counter":
        yield "", _rate(first, matcher)
    else:
        yield "", f"sum by (service_name) ({first}{{{matcher}}})"


def _rate(series: str, matcher: str) -> str:
    return f"sum by (service_name) (irate({series}{{{matcher}}}[1m]))"


def _rfc3339(nanos: int) -> str:
    return f"{datetime.fromtimestamp(nanos // _SECOND, UTC):%Y-%m-%dT%H:%M:%S}.{nanos % _SECOND:09}Z"


def _parse(document: Any) -> list[Span]:
    """Parse OTLP JSON, in which ids are in hex where protobuf's JSON has base64."""
    spans = [span for group in document["resourceSpans"] for scope in group["scopeSpans"] for span in scope["spans"]]
    for span in spans:
        ids = {name: bytes.fromhex(span.get(name, "")) for name in ("traceId", "spanId", "parentSpanId")}
        span.update({name: b64encode(value).decode() for name, value in ids.items()}, links=[])
    return list(spans_of(ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True)))


def _log(labels: dict[str, str], time: str, line: str) -> LogRecord:
    fields = [f"{name}={value}" for name, value in sorted(labels.items()) if not name.startswith(_RESOURCE)]
    found = (labels.get(name, "") for name in ("service_name", "severity_text", "trace_id", "span_id"))
    service, level, *ids = found
    return LogRecord(int(time), service, level, " ".join((line, *fields)), *ids)
