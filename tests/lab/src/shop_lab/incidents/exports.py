"""A run in the formats of others: a case of RCAEval, a system of OpenRCA."""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from chassis.errors import InvalidArgument
from shop_cli.local.spans import Span
from shop_lab.incidents import record
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.own_time import Columns
from shop_lab.incidents.record import InjectedFault
from shop_lab.incidents.telemetry import LogRecord, Telemetry, read, write_csv

_SECOND, _MILLISECOND, _MICROSECOND = 10**9, 10**6, 10**3
# As RCAEval's own data: resources, traffic, and times without those of callees. A single slow second is no incident.
_RCAEVAL_METRICS = frozenset(
    ("cpu", "mem", "latency-90", "wait", "workload", "error", "silence", "shop-store-volume-usage")
)
_MEAN_OF_SECONDS = 15
_FAILED = 2  # OTLP's status of a span
_RCAEVAL_LOGS = "time,timestamp,container_name,message,level,req_path,error"
_RCAEVAL_TRACES = (
    "time,traceID,spanID,serviceName,methodName,operationName,startTimeMillis,startTime,duration,"
    "statusCode,parentSpanID"
)
_OPENRCA_RECORD = "level,component,timestamp,datetime,reason"
_OPENRCA_METRICS = "timestamp,cmdb_id,kpi_name,value"
_OPENRCA_SPANS = "timestamp,cmdb_id,span_id,trace_id,duration,type,status_code,operation_name,parent_span"
_OPENRCA_LOGS = "log_id,timestamp,cmdb_id,log_name,value"


class NotExportable(InvalidArgument):
    """A format has no word for what was wrong in a run."""


def export(folder: Path, form: str, out: Path) -> Path:
    """Write a run in a format below `out`; return where. Raise NotExportable, RecordMalformed or TelemetryMissing."""
    if form not in FORMATS:
        raise NotExportable.field("as", f"must be one of {', '.join(FORMATS)}")
    _, truth = record.read(folder)
    telemetry = read(folder / "telemetry")
    (injected,) = truth.faults
    return FORMATS[form](injected, telemetry, out)


def _label(fault: Fault, form: str) -> Any:
    label = getattr(fault.labels, form)
    if not label:
        raise NotExportable.field("as", f"{form} has no word for the fault of this run")
    return label


def _applied(injected: InjectedFault) -> int:
    """Return when a fault was applied, in seconds."""
    return (injected.times.applied or injected.times.requested) // _SECOND


def _rcaeval(injected: InjectedFault, telemetry: Telemetry, out: Path) -> Path:
    """Write `out/shop_<service>_<fault>_<number>/`, until the fault ends."""
    stem = f"shop_{injected.fault.service}_{_label(injected.fault, 'rcaeval')}"
    # The restarts and the backlog that its removal brings are no effect of the fault.
    over = injected.times.requested + int(injected.seconds * _SECOND)
    telemetry = telemetry.between(0, min(over, injected.times.removed or over))
    folder = out / f"{stem}_{len(list(out.glob(f'{stem}_*'))) + 1}"
    folder.mkdir(parents=True)
    (folder / "inject_time.txt").write_text(f"{_applied(injected)}\n", encoding="ascii")
    (folder / "metrics.json").write_text(json.dumps(_smoothed(telemetry.metrics)), encoding="ascii")
    write_csv(folder / "logs.csv", _RCAEVAL_LOGS, map(_rcaeval_log, telemetry.logs))
    write_csv(folder / "traces.csv", _RCAEVAL_TRACES, map(_rcaeval_span, telemetry.spans))
    return folder


def _smoothed(columns: Columns) -> dict[str, list[tuple[int, float]]]:
    """Return columns over the same seconds, as means; what is missing is the value before, or the first."""
    chosen = {name: values for name, values in columns.items() if name.split("_")[1] in _RCAEVAL_METRICS}
    seconds = sorted({second for values in chosen.values() for second in values})
    smoothed = {}
    for name, values in chosen.items():
        latest, means = deque([values[min(values)]], _MEAN_OF_SECONDS), []
        for second in range(seconds[0], seconds[-1] + 1):
            latest.append(values.get(second, latest[-1]))
            means.append((second, fmean(latest)))
        smoothed[name] = means
    return smoothed


def _rcaeval_log(log: LogRecord) -> Iterable[Any]:
    return f"{_utc(log.time_nanos):%H:%M}", log.time_nanos, log.service, log.message, log.level.lower(), "", ""


def _rcaeval_span(span: Span) -> Iterable[Any]:
    started, names = span.started_nanos, (span.trace_id, span.span_id, span.service, span.name, span.name)
    times = (started // _MILLISECOND, started // _MICROSECOND, _microseconds(span))
    return f"{_utc(started):%H:%M}", *names, *times, _FAILED * span.failed, span.parent_id


def _openrca(injected: InjectedFault, telemetry: Telemetry, out: Path) -> Path:
    """Add the run to the system in `out`: `record.csv` and `telemetry/<date>/`. All times are UTC."""
    fault, seconds = injected.fault, _applied(injected)
    known = (out / "record.csv").read_text("utf-8") if (out / "record.csv").exists() else ""
    if f"service,{fault.service},{seconds}," in known:
        raise NotExportable.field("out", f"{out} has this run already")
    if fault.kind != "control":
        when = f"{_utc(seconds * _SECOND):%Y-%m-%d %H:%M:%S}"
        fields = ("service", fault.service, seconds, when, _label(fault, "openrca"))
        write_csv(out / "record.csv", _OPENRCA_RECORD, [fields])
    for file, header, rows in (
        ("metric/metric_container.csv", _OPENRCA_METRICS, _openrca_metrics(telemetry.metrics)),
        ("trace/trace_span.csv", _OPENRCA_SPANS, map(_openrca_span, telemetry.spans)),
        ("log/log_service.csv", _OPENRCA_LOGS, map(_openrca_log, telemetry.logs)),
    ):
        dates: defaultdict[str, list[Iterable[Any]]] = defaultdict(list)
        for nanos, row in rows:
            dates[f"{_utc(nanos):%Y_%m_%d}"].append(row)
        for date, found in dates.items():
            write_csv(out / "telemetry" / date / file, header, found)
    return out


_Row = tuple[int, Iterable[Any]]
"""A row and its time in nanoseconds since 1970."""


def _openrca_metrics(columns: Columns) -> Iterator[_Row]:
    for name, values in columns.items():
        service, _, metric = name.partition("_")
        yield from ((second * _SECOND, (second, service, metric, value)) for second, value in values.items())


def _openrca_span(span: Span) -> _Row:
    ids = (span.started_nanos // _MILLISECOND, span.service, span.span_id, span.trace_id)
    outcome = (_microseconds(span), span.kind.lower(), _FAILED * span.failed, span.name, span.parent_id)
    return span.started_nanos, (*ids, *outcome)


def _openrca_log(log: LogRecord) -> _Row:
    name, value = f"log_{log.service}", f"severity: {log.level.lower()}, message: {log.message}"
    return log.time_nanos, (f"{log.time_nanos:x}", log.time_nanos // _SECOND, log.service, name, value)


def _utc(nanos: int) -> datetime:
    return datetime.fromtimestamp(nanos // _SECOND, UTC)


def _microseconds(span: Span) -> int:
    return (span.ended_nanos - span.started_nanos) // _MICROSECOND


FORMATS: dict[str, Callable[[InjectedFault, Telemetry, Path], Path]] = {"rcaeval": _rcaeval, "openrca": _openrca}
"""The formats by name: functions that write a run below a folder, and return where."""
