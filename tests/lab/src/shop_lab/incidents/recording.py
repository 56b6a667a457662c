"""Telemetry of a local run, from the export requests that `shop up --lab` records while a folder exists."""

import shutil
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from chassis.telemetry.semconv import METRICS, Kind
from shop_cli.local.otlp_receiver import attributes_of, spans_of
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, Run
from shop_lab.incidents.own_time import columns_of
from shop_lab.incidents.telemetry import Columns, LogRecord, Telemetry, TelemetryMissing, column

_Request = TypeVar("_Request", bound=Message)
_Points = dict[tuple[str, ...], dict[int, tuple[float, int]]]
"""Sum and count by nanoseconds, by series: service, metric, instance, attributes."""

_KINDS = {metric.name: metric.kind for metric in METRICS}


@contextmanager
def recording(run: Run) -> Iterator[Path]:
    """Record a running shop while in the context; yield the folder, which is removed at the end.

    Raise TelemetryMissing if the shop was not started with `--lab`.
    """
    if not run.lab:
        raise TelemetryMissing("the shop records no telemetry: start it with `shop up --lab`")
    folder = Path(run.folder) / DATA / FOLDER
    _remove(folder)  # of a command that was killed
    folder.mkdir()
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    old = folder.with_suffix(".old")
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(old)  # a file that the shop creates meanwhile would keep a folder from being removed
    shutil.rmtree(old, ignore_errors=True)


def read_recording(folder: Path, since_nanos: int, until_nanos: int) -> Telemetry:
    """Return the telemetry of a window. Raise TelemetryMissing if the services export to elsewhere."""
    spans = [span for request in _requests(folder, ExportTraceServiceRequest) for span in spans_of(request)]
    if not spans:
        raise TelemetryMissing("no span was recorded: is OTEL_EXPORTER_OTLP_ENDPOINT set where `shop up` runs?")
    logs = [log for request in _requests(folder, ExportLogsServiceRequest) for log in _logs(request)]
    metrics = _metrics(_requests(folder, ExportMetricsServiceRequest))
    whole = Telemetry(spans, logs, metrics).between(since_nanos, until_nanos)
    return Telemetry(whole.spans, whole.logs, {**whole.metrics, **columns_of(whole.spans)})


def _requests(folder: Path, kind: type[_Request]) -> Iterator[_Request]:
    path = folder / kind.__name__
    if path.exists():
        with path.open("rb") as file:
            yield from (kind.FromString(b64decode(line)) for line in file)


def _logs(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    for group in request.resource_logs:
        service = str(attributes_of(group.resource.attributes).get("service.name", ""))
        for scope in group.scope_logs:
            for log in scope.log_records:
                attributes = attributes_of(log.attributes)
                message = " ".join((log.body.string_value, *(f"{name}={value}" for name, value in attributes.items())))
                ids = (log.trace_id.hex(), log.span_id.hex())
                yield LogRecord(
                    log.time_unix_nano or log.observed_time_unix_nano, service, log.severity_text, message, *ids
                )


def _metrics(requests: Iterable[ExportMetricsServiceRequest]) -> Columns:
    """Return a column for each metric of a service: values of gauges, rates of counters, means of histograms."""
    columns: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    means: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (service, metric, *_), points in _points(requests).items():
        kind, name = _KINDS.get(metric, Kind.GAUGE), column(service, metric)
        if kind in (Kind.GAUGE, Kind.UP_DOWN_COUNTER):
            for nanos, (value, _) in points.items():
                columns[name][nanos // 10**9].append(value)
            continue
        for (before, first), (nanos, second) in zip(list(points.items()), list(points.items())[1:], strict=False):
            grown, count = second[0] - first[0], second[1] - first[1]
            if kind is Kind.COUNTER:
                columns[name][nanos // 10**9].append(grown / (nanos - before) * 1e9)
            else:
                means[name][nanos // 10**9] += [grown, count]
                columns[f"{name}-count"][nanos // 10**9].append(count / (nanos - before) * 1e9)
    return {
        **{name: {second: sum(values) for second, values in found.items()} for name, found in columns.items()},
        **{
            name: {second: sum(v[::2]) / sum(v[1::2]) for second, v in found.items() if sum(v[1::2])}
            for name, found in means.items()
        },
    }


def _points(requests: Iterable[ExportMetricsServiceRequest]) -> _Points:
    series: _Points = defaultdict(dict)
    for request in requests:
        for group in request.resource_metrics:
            resource = attributes_of(group.resource.attributes)
            service, instance = (str(resource.get(name, "")) for name in ("service.name", "service.instance.id"))
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    for point in _points_of(metric):
                        labels = str(sorted(attributes_of(point.attributes).items()))
                        key = (service, metric.name, instance, labels)
                        series[key][point.time_unix_nano] = _value(point)
    return series


def _points_of(metric: Any) -> Iterable[Any]:
    points: Iterable[Any] = getattr(metric, metric.WhichOneof("data")).data_points
    return points


def _value(point: Any) -> tuple[float, int]:
    if hasattr(point, "bucket_counts"):
        return point.sum, point.count
    return float(getattr(point, point.WhichOneof("value"))), 0
