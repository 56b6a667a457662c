"""What an investigator gets of a run: spans, logs, and metrics by the second, as files that need no tool of ours.

`telemetry/` of a run has `metrics.csv` (`time` in seconds since 1970 and one column `<service>_<metric>` each; empty
where a second has no value), `spans.jsonl` and `logs.jsonl` (one object per line, with times in nanoseconds).
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chassis.errors import FailedPrecondition
from shop_cli.local.spans import Span
from shop_lab.incidents.own_time import Columns, columns_of

_METRICS, _SPANS, _LOGS = "metrics.csv", "spans.jsonl", "logs.jsonl"


class TelemetryMissing(FailedPrecondition):
    """A run has no telemetry, or its store does not provide any."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An event of a service. `trace_id` and `span_id` are in hex, "" outside of traces."""

    time_nanos: int
    service: str
    level: str
    message: str
    trace_id: str = ""
    span_id: str = ""


@dataclass
class Telemetry:
    """The telemetry of a window of time."""

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    metrics: Columns = field(default_factory=dict)

    def between(self, since_nanos: int, until_nanos: int) -> "Telemetry":
        """Return what is of that time, by time and each span once, with the columns of own time."""
        spans = {span.span_id: span for span in self.spans if since_nanos <= span.ended_nanos < until_nanos}
        logs = [log for log in self.logs if since_nanos <= log.time_nanos < until_nanos]
        first, last = since_nanos // 10**9, until_nanos // 10**9
        metrics = {
            name: {second: value for second, value in values.items() if first <= second < last}
            for name, values in self.metrics.items()
        }
        return Telemetry(
            ordered := sorted(spans.values(), key=lambda span: span.started_nanos),
            sorted(logs, key=lambda log: log.time_nanos),
            {name: values for name, values in sorted({**metrics, **columns_of(ordered)}.items()) if values},
        )

    def write(self, folder: Path) -> None:
        """Write the files to an empty folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in ((_SPANS, self.spans), (_LOGS, self.logs)):
            with (folder / name).open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        write_csv(folder / _METRICS, ",".join(("time", *self.metrics)), self._rows())

    def _rows(self) -> Iterator[list[Any]]:
        """Yield a row per second: the time, then each metric's value or ""."""
        seconds = [second for values in self.metrics.values() for second in values]
        for second in range(min(seconds, default=0), max(seconds, default=-1) + 1):
            yield [second, *(values.get(second, "") for values in self.metrics.values())]


def read(folder: Path) -> Telemetry:
    """Read what `write` has written. Raise TelemetryMissing."""
    try:
        spans = [Span(**row) for row in _objects(folder / _SPANS)]
        logs = [LogRecord(**row) for row in _objects(folder / _LOGS)]
        with (folder / _METRICS).open(encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
    except FileNotFoundError as error:
        raise TelemetryMissing(f"no telemetry: {error.filename} is missing") from None
    columns = zip(names[1:], zip(*(row[1:] for row in rows), strict=True), strict=False)
    times = [int(row[0]) for row in rows]
    metrics = {
        name: {second: float(value) for second, value in zip(times, values, strict=True) if value}
        for name, values in columns
    }
    return Telemetry(spans, logs, metrics)


def column(service: str, metric: str) -> str:
    """Return the name of a metric's column. RCAEval has its own words for two, and splits names at `_`."""
    short = {"process.cpu.time": "cpu", "process.memory.usage": "mem"}.get(metric, metric)
    return f"{service}_{re.sub('[._]', '-', short)}"


def write_csv(path: Path, header: str, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file and the folders above it; append to one that exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        if not file.tell():
            file.write(f"{header}\n")
        csv.writer(file, lineterminator="\n").writerows(rows)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
