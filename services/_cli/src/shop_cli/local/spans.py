from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span.

    Attributes:
        service, instance: `service.name` and `service.instance.id` of the exporting process; "" if not set.
        parent_id: the parent span's id; "" for a root span. All ids are hex strings.
        started_nanos, ended_nanos: Unix timestamps in nanoseconds.
    """

    service: str
    instance: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    started_nanos: int
    ended_nanos: int
    attributes: dict[str, Value]
    failed: bool

    @property
    def milliseconds(self) -> float:
        return (self.ended_nanos - self.started_nanos) / 1e6


def tree_order(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Yield a trace's spans with their depth: parents before their children, siblings by start time.

    Treat a span whose parent is missing as a root.
    """
    ids = {span.span_id for span in spans}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.started_nanos, reverse=True):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    pending = [(0, span) for span in children.pop("", [])]
    while pending:
        depth, span = pending.pop()
        yield depth, span
        pending += [(depth + 1, child) for child in children.pop(span.span_id, [])]
