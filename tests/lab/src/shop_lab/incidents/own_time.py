"""Columns that blame the service at fault, not those that wait for it, from the spans of a run.

For every service that serves calls: `_workload` (calls served per second), `_latency-90` (milliseconds of its own per
call: its spans without the time of calls to other services), `_wait` (mean milliseconds for which callers waited
without the service at work: network, queues, and all of a call that never arrived), `_error` (percentage of calls
whose failure no failure of a callee explains) and `_silence` (seconds since it last served a call: it rises when the
service stops).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chassis.telemetry import semconv
from shop_cli.local.spans import Span

Columns = dict[str, dict[int, float]]
"""Values by the second since 1970, by column `<service>_<metric>`."""
_Samples = defaultdict[str, defaultdict[int, list[float]]]
"""Values by the second in which a span ended, by service."""


def _samples() -> _Samples:
    return defaultdict(lambda: defaultdict(list))


@dataclass
class _Observed:
    own: _Samples = field(default_factory=_samples)
    waits: _Samples = field(default_factory=_samples)
    errors: _Samples = field(default_factory=_samples)


def columns_of(spans: Sequence[Span]) -> Columns:
    """Return the columns of all services, with a value for every second from the service's first call to the last."""
    callees = {span.name: span.service for span in spans if span.kind == "SERVER"}
    traces: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    observed = _Observed()
    for trace in traces.values():
        _observe(trace, callees, observed)
    return _columns(observed, max((span.ended_nanos // 10**9 for span in spans), default=0))


def _observe(trace: Sequence[Span], callees: Mapping[str, str], observed: _Observed) -> None:
    by_id = {span.span_id: span for span in trace}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in trace:
        children[span.parent_id].append(span)
    own: defaultdict[str, float] = defaultdict(float)
    for span in trace:
        below = children[span.span_id]
        second = span.ended_nanos // 10**9
        owner = callees.get(span.name, span.service) if _is_call(span) else span.service
        if _is_call(span):
            observed.waits[owner][second].append(_uncovered(span, below))
        elif request := _request_of(span, by_id):
            own[request] += _uncovered(span, below)
        if span.failed and not any(child.failed for child in below):
            observed.errors[owner][second].append(1)
    for span_id, milliseconds in own.items():
        served = by_id[span_id]
        observed.own[served.service][served.ended_nanos // 10**9].append(milliseconds)


def _is_call(span: Span) -> bool:
    """Return whether a span is a call of another service, of which the time belongs to the callee."""
    return span.kind == "CLIENT" and semconv.RPC_METHOD in span.attributes


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


def _columns(observed: _Observed, last: int) -> Columns:
    columns: Columns = {}
    for service, own in observed.own.items():
        seconds = range(min(own), last + 1)
        waits, errors, served = observed.waits[service], observed.errors[service], min(own)
        columns[f"{service}_latency-90"] = {second: _percentile(values, 0.9) for second, values in own.items()}
        columns[f"{service}_wait"] = {second: sum(values) / len(values) for second, values in waits.items()}
        columns[f"{service}_workload"] = {second: float(len(own.get(second, ()))) for second in seconds}
        columns[f"{service}_error"] = {
            second: 100 * failed / max(failed, len(own.get(second, (1,))))
            for second in seconds
            for failed in [len(errors.get(second, ()))]
        }
        silence = columns[f"{service}_silence"] = {}
        for second in seconds:
            served = second if second in own else served
            silence[second] = float(second - served)
    return {name: values for name, values in columns.items() if values}


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]
