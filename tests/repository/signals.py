"""Print `services/_chassis/signals.md`, the page of all names of telemetry, from `chassis.telemetry.semconv`."""

import sys
from collections.abc import Iterable

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Metric

_HEAD = """# Signals

Every metric and span that the project exports, with its attributes, made from
[semconv.py](src/chassis/telemetry/semconv.py) by `make signals`. Names that do not begin with `shop.` are those of
[OpenTelemetry's semantic conventions](https://opentelemetry.io/docs/specs/semconv/). The Prometheus series are those of
its OTLP receiver, which adds attributes of the resource as labels, such as `service_name`.
"""


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (columns, ("---",) * len(columns), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(*names: str) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _metric_row(metric: Metric) -> tuple[str, ...]:
    kind = metric.kind.value.replace("_", "-")
    lists = (_code(*metric.attributes), _code(*metric.series))
    return (_code(metric.name), kind, _code(metric.unit), *lists, metric.description)


def main() -> None:
    metrics = map(_metric_row, sorted(semconv.METRICS, key=lambda metric: metric.name))
    spans = ((_code(each.name), each.kind, _code(*each.attributes), each.description) for each in semconv.SPANS)
    parts = (
        _HEAD,
        "## Metrics\n",
        _table(("metric", "kind", "unit", "attributes", "Prometheus series", "meaning"), metrics),
        "## Spans\n",
        _table(("span", "kind", "attributes", "meaning"), spans),
    )
    sys.stdout.write("\n".join(parts))


if __name__ == "__main__":
    main()
