"""Print `services/_chassis/signals.md`, the page of all names of telemetry, from `chassis.telemetry.semconv`."""

import sys
from collections.abc import Iterable

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Metric

_RPC = (semconv.RPC_SYSTEM, semconv.RPC_METHOD, semconv.RPC_STATUS, semconv.ERROR_TYPE)
_HTTP = (semconv.HTTP_METHOD, semconv.HTTP_ROUTE, semconv.HTTP_STATUS, semconv.URL_PATH, semconv.URL_SCHEME)

# Name, in which `{...}` stands for the value of an attribute; kind; attributes besides those of the baggage and of
# orders; what the span covers.
SPANS = (
    (
        f"{{{semconv.RPC_METHOD}}}",
        "SERVER",
        (*_RPC, semconv.ERROR_REASON),
        (
            "A call that a service serves. It has an error type, and counts as failed, if its status is a failure of "
            "the server: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE or DATA_LOSS"
        ),
    ),
    (
        f"{{{semconv.RPC_METHOD}}}",
        "CLIENT",
        (*_RPC, semconv.SERVER_ADDRESS, semconv.SERVER_PORT, semconv.ERROR_REASON),
        "A call that a service makes, with all its attempts. Every status but OK is a failure",
    ),
    (
        f"{{{semconv.HTTP_METHOD}}} {{{semconv.HTTP_ROUTE}}}",
        "SERVER",
        (*_HTTP, semconv.ERROR_TYPE),
        "An HTTP request. Status 500 and above, and unexpected exceptions, are failures",
    ),
)

_HEAD = """# Signals

Every metric and span, with its attributes, generated from [semconv.py](src/chassis/telemetry/semconv.py) by
`make signals`. Names without `shop.` are [OpenTelemetry's](https://opentelemetry.io/docs/specs/semconv/). Series are
those of Prometheus's OTLP receiver, which also makes labels of resource attributes such as `service_name`. Seconds and
bytes are in their names; `_total` is a counter, `_bucket` a histogram.
"""


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (columns, ("---",) * len(columns), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(*names: str) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _metric_row(metric: Metric) -> tuple[str, ...]:
    return (_code(metric.name), _code(*metric.attributes), _code(*metric.series), metric.description)


def main() -> None:
    metrics = map(_metric_row, sorted(semconv.METRICS, key=lambda metric: metric.name))
    spans = ((_code(name), kind, _code(*attributes), meaning) for name, kind, attributes, meaning in SPANS)
    parts = (
        _HEAD,
        "## Metrics\n",
        _table(("metric", "attributes", "Prometheus series", "meaning"), metrics),
        "## Spans\n",
        _table(("span", "kind", "attributes", "meaning"), spans),
    )
    sys.stdout.write("\n".join(parts))


if __name__ == "__main__":
    main()
