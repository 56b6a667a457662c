"""Columns that blame the service at fault, not those that wait for it, from the spans of a run.

For every service that serves calls: `_workload` (calls served per second), `_latency-90` (milliseconds of its own per
call: its spans without the time of calls to other services), `_wait` (mean milliseconds for which callers waited
without the service at work: network, queues, and all of a call that never arrived), `_error` (percentage of calls
whose failure no failure of a callee explains) and `_silence` (seconds since it last served a call: it rises when the
service stops).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Literal

from chassis.telemetry import semconv
from shop_cli.local.spans import Span

Columns = dict[str, dict[int, float]]
"""Values by the second since 1970, by column `<service>_<metric>`."""
_Values = Mapping[int, list[float]]
_Sample = tuple[str, Literal["own", "wait", "error"], Span, float]
"""A value of a service, at the end of a span."""


def columns_of(spans: Sequence[Span]) -> Columns:
    """Return the columns of all services, with a value for every second from the service's first call to the last."""
    callees = {span.name: span.service for span in spans if span.kind == "SERVER"}
    traces: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    samples: defaultdict[tuple[str, str], defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces.values():
        for service, kind, span, value in _samples(trace, callees):
            samples[service, kind][_second(span)].append(value)
    last = max(map(_second, spans), default=0)
    columns: Columns = {}
    for service in [service for service, kind in samples if kind == "own"]:
        found = _of_service(last, *(samples[service, kind] for kind in ("own", "wait", "error")))
        columns.update({f"{service}_{metric}": values for metric, values in found.items() if values})
    return columns


def _of_service(last: int, own: _Values, waits: _Values, errors: _Values) -> Columns:
    seconds = range(min(own), last + 1)
    served = accumulate((second if second in own else 0 for second in seconds), max)
    return {
        "latency-90": {second: _percentile(values, 0.9) for second, values in own.items()},
        "wait": {second: fmean(values) for second, values in waits.items()},
        "workload": {second: float(len(own.get(second, ()))) for second in seconds},
        "error": {
            second: 100 * failed / max(failed, len(own.get(second, (1,))))
            for second in seconds
            for failed in [len(errors.get(second, ()))]
        },
        "silence": {second: float(second - latest) for second, latest in zip(seconds, served, strict=True)},
    }


def _samples(trace: Sequence[Span], callees: Mapping[str, str]) -> Iterator[_Sample]:
    by_id = {span.span_id: span for span in trace}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in trace:
        children[span.parent_id].append(span)
    own: defaultdict[str, float] = defaultdict(float)
    for span in trace:
        below, owner = children[span.span_id], span.service
        if span.kind == "CLIENT" and semconv.RPC_METHOD in span.attributes:  # its time belongs to the callee
            owner = callees.get(span.name, owner)
            yield owner, "wait", span, _uncovered(span, below)
        elif request := _request_of(span, by_id):
            own[request] += _uncovered(span, below)
        if span.failed and not any(child.failed for child in below):
            yield owner, "error", span, 1
    yield from ((by_id[request].service, "own", by_id[request], milliseconds) for request, milliseconds in own.items())


def _second(span: Span) -> int:
    return span.ended_nanos // 10**9


def _request_of(span: Span, by_id: Mapping[str, Span]) -> str | None:
    """Return the id of the span that serves the request which this one is part of; None if there is none."""
    found: Span | None = span
    while found is not None and found.kind != "SERVER":
        found = by_id.get(found.parent_id)
    return found.span_id if found is not None and found.service == span.service else None


def _uncovered(span: Span, below: Iterable[Span]) -> float:
    """Return the milliseconds of a span in which none of its children ran."""
    covered, reached = 0, span.started_nanos
    for child in sorted(below, key=lambda child: child.started_nanos):
        start, end = max(child.started_nanos, reached), min(child.ended_nanos, span.ended_nanos)
        covered += max(0, end - start)
        reached = max(reached, end)
    return max(0, span.ended_nanos - span.started_nanos - covered) / 1e6


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]
