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

from chassis.telemetry.semconv import METRICS, Kind
from shop_cli.local.otlp_receiver import attributes_of, spans_of
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, Run
from shop_lab.incidents.own_time import Columns
from shop_lab.incidents.telemetry import LogRecord, Telemetry, TelemetryMissing, column

_Request = TypeVar("_Request", bound=Message)
_SECOND = 10**9
_KINDS = {metric.name: metric.kind for metric in METRICS}


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
    metrics = _Metrics(_requests(folder, ExportMetricsServiceRequest)).columns
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


_Sums = defaultdict[str, defaultdict[int, float]]


def _sums() -> _Sums:
    return defaultdict(lambda: defaultdict(float))


class _Metrics:
    """Columns of metrics: values of gauges, rates of counters, and of histograms the rate and the mean."""

    def __init__(self, requests: Iterable[ExportMetricsServiceRequest]) -> None:
        self._columns, self._totals, self._counts = _sums(), _sums(), _sums()
        self._latest: dict[tuple[str, ...], tuple[int, float, int]] = {}
        self._exported: dict[str, int] = {}
        for request in requests:
            for group in request.resource_metrics:
                resource = attributes_of(group.resource.attributes)
                service, instance = (str(resource.get(name, "")) for name in ("service.name", "service.instance.id"))
                exported = [
                    self._add(service, instance, metric) for scope in group.scope_metrics for metric in scope.metrics
                ]
                self._exported[instance] = max(exported, default=0)

    @property
    def columns(self) -> Columns:
        means = {
            name: {second: total / self._counts[name][second] for second, total in totals.items()}
            for name, totals in self._totals.items()
        }
        return {**{name: dict(values) for name, values in self._columns.items()}, **means}

    def _add(self, service: str, instance: str, metric: Metric) -> int:
        """Add the points of a metric, and return their time."""
        nanos, kind, name = 0, _KINDS.get(metric.name, Kind.GAUGE), column(service, metric.name)
        for point in _points(metric):
            nanos, (value, count) = point.time_unix_nano, _value(point)
            if kind in (Kind.COUNTER, Kind.HISTOGRAM):
                key = (instance, metric.name, str(sorted(attributes_of(point.attributes).items())))
                # A series that begins after its process's first export, such as one of errors, has grown from zero.
                before, *base = self._latest.get(key, (self._exported.get(instance, nanos), 0.0, 0))
                self._latest[key] = (nanos, value, count)
                self._add_growth(name, kind, (before, nanos), value - base[0], count - int(base[1]))
            else:
                self._columns[name][nanos // _SECOND] += value
        return nanos

    def _add_growth(self, name: str, kind: Kind, times: tuple[int, int], value: float, count: int) -> None:
        second, seconds = times[1] // _SECOND, (times[1] - times[0]) / _SECOND
        if not seconds:
            return
        if kind is Kind.COUNTER:
            self._columns[name][second] += value / seconds
            return
        self._columns[f"{name}-count"][second] += count / seconds
        if count:
            self._totals[name][second] += value
            self._counts[name][second] += count


def _points(metric: Metric) -> Iterable[Any]:
    points: Iterable[Any] = getattr(metric, metric.WhichOneof("data") or "gauge").data_points
    return points


def _value(point: Any) -> tuple[float, int]:
    if hasattr(point, "bucket_counts"):
        return point.sum, point.count
    return float(getattr(point, point.WhichOneof("value"))), 0
