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
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from shop_cli.local.otlp_receiver import attributes_of, spans_of
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, Run
from shop_lab.incidents.own_time import Columns
from shop_lab.incidents.telemetry import LogRecord, Telemetry, TelemetryMissing, column

_Request = TypeVar("_Request", bound=Message)
_SECOND = 10**9
_COUNT = "-count"


@contextmanager
def recording(run: Run) -> Iterator[Path]:
    """Record a running shop while in the context; yield the folder, which is removed at the end.

    Raise TelemetryMissing if the shop was not started with `--lab`.
    """
    if not run.lab:
        raise TelemetryMissing("the shop records no telemetry: start it with `shop up --lab`")
    folder = Path(run.folder) / DATA / FOLDER
    remove(folder)  # of a command that was killed
    folder.mkdir()
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """End a recording."""
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
    metrics = _columns(_requests(folder, ExportMetricsServiceRequest))
    return Telemetry(spans, logs, metrics).between(since_nanos, until_nanos)


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
                nanos = log.time_unix_nano or log.observed_time_unix_nano
                yield LogRecord(nanos, service, log.severity_text, message, *ids)


def _columns(requests: Iterable[ExportMetricsServiceRequest]) -> Columns:
    """Return values of gauges, rates of counters, and of histograms the rate and the mean, summed over the series."""
    columns: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    latest: dict[tuple[str, str], tuple[int, float]] = {}
    for name, series, began, nanos, value in _samples(requests):
        if began is None:
            columns[name][nanos // _SECOND] += value
            continue
        before, earlier = latest.get((name, series), (began, 0.0))
        latest[name, series] = (nanos, value)
        if nanos > before:
            columns[name][nanos // _SECOND] += (value - earlier) * _SECOND / (nanos - before)
    for name in [name for name in columns if f"{name}{_COUNT}" in columns]:
        counts = columns[f"{name}{_COUNT}"]
        means = {second: total / counts[second] for second, total in columns[name].items() if counts[second]}
        columns[name] = defaultdict(float, means)
    return {name: dict(values) for name, values in columns.items()}


def _samples(requests: Iterable[ExportMetricsServiceRequest]) -> Iterator[tuple[str, str, int | None, int, float]]:
    """Yield the column of each value, its series, for what only grows since when at the latest, its time, and itself.

    A series that begins after its process's first export, such as one of errors, has grown from zero since the last.
    """
    exported: dict[str, int] = {}
    for request in requests:
        for group in request.resource_metrics:
            resource = attributes_of(group.resource.attributes)
            service, instance = (str(resource.get(name, "")) for name in ("service.name", "service.instance.id"))
            nanos = 0
            for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                for suffix, grows, point, value in _values(metric):
                    name, nanos = column(service, metric.name) + suffix, point.time_unix_nano
                    series = f"{instance} {sorted(attributes_of(point.attributes).items())}"
                    yield name, series, exported.get(instance, nanos) if grows else None, nanos, value
            exported[instance] = nanos


def _values(metric: Metric) -> Iterator[tuple[str, bool, Any, float]]:
    """Yield for every value of a metric the suffix of its column, whether it grows, its point, and the value."""
    for histogram in metric.histogram.data_points:
        yield "", True, histogram, histogram.sum
        yield _COUNT, True, histogram, float(histogram.count)
    for point in (*metric.sum.data_points, *metric.gauge.data_points):
        yield "", metric.sum.is_monotonic, point, point.as_double or float(point.as_int)
