"""Spans that behave like the SDK's at a fraction of the cost: see the README's decision on spans."""

import sys
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import TracebackType
from typing import cast

import structlog
from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, SpanLimits
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import AnyValue, Attributes
from typing_extensions import override

log = structlog.get_logger()

_UNSET = Status()
_PLAIN_TYPES = frozenset({str, bool, int, float})
_STRING = frozenset({str})


class SpanOrigin:
    """What all spans of a tracer have in common.

    Attributes:
        resource: of the process.
        scope: instrumentation scope.
        limits: the SDK's.
        max_plain_attributes: above it attributes are left to OpenTelemetry's class; all are if their length is limited.
        export: is called with each sampled span when that ends.
    """

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, limits: SpanLimits, export: Callable[["Span"], None]
    ) -> None:
        self.resource = resource
        self.scope = scope
        self.limits = limits
        most = sys.maxsize if limits.max_span_attributes is None else limits.max_span_attributes
        self.max_plain_attributes = most if limits.max_span_attribute_length is None else -1
        self.export = export


class Span(trace.Span):
    """A recorded span. Its attributes have the names that the SDK's ReadableSpan has, so that its encoder reads them.

    It has no lock: only one thread at a time may use it.

    Attributes:
        attributes: a dict while all are strings, numbers or booleans within the limits, as nearly always.
    """

    __slots__ = (
        "_events",
        "_links",
        "_origin",
        "_record_exception",
        "_set_status_on_exception",
        "attributes",
        "context",
        "end_time",
        "kind",
        "name",
        "parent",
        "start_time",
        "status",
    )

    def __init__(
        self,
        origin: SpanOrigin,
        name: str,
        context: SpanContext,
        *,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Attributes,
        links: Sequence[Link] | None,
        start_time: int | None,
        record_exception: bool,
        set_status_on_exception: bool,
    ) -> None:
        self._origin = origin
        self.name = name
        self.context = context
        self.parent = parent
        self.kind = kind
        self.attributes: dict[str, AnyValue] | BoundedAttributes = dict(attributes) if attributes else {}
        if len(self.attributes) > origin.max_plain_attributes or not _are_plain(self.attributes):
            self.attributes = self._bounded(self.attributes)
        self.status = _UNSET
        self.start_time = time_ns() if start_time is None else start_time
        self.end_time: int | None = None
        self._events: BoundedList[Event] | None = None
        self._links: BoundedList[Link] | None = None
        for link in links or ():
            self.add_link(link.context, link.attributes)
        self._record_exception = record_exception
        self._set_status_on_exception = set_status_on_exception

    @property
    def is_plain(self) -> bool:
        """Whether the span is like nearly all: without events and links, and with simple attributes."""
        return type(self.attributes) is dict and self._events is None and self._links is None

    @property
    def resource(self) -> Resource:
        return self._origin.resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        return self._origin.scope

    @property
    def events(self) -> Sequence[Event]:
        return tuple(self._events or ())

    @property
    def links(self) -> Sequence[Link]:
        return tuple(self._links or ())

    @property
    def dropped_attributes(self) -> int:
        return self.attributes.dropped if isinstance(self.attributes, BoundedAttributes) else 0

    @property
    def dropped_events(self) -> int:
        return 0 if self._events is None else self._events.dropped

    @property
    def dropped_links(self) -> int:
        return 0 if self._links is None else self._links.dropped

    @override
    def get_span_context(self) -> SpanContext:
        return self.context

    @override
    def is_recording(self) -> bool:
        return self.end_time is None

    @override
    def set_attribute(self, key: str, value: AnyValue) -> None:
        if self._has_ended("set_attribute"):
            return
        attributes = self.attributes
        if (
            type(attributes) is dict
            and type(value) in _PLAIN_TYPES
            and type(key) is str
            and key
            and len(attributes) < self._origin.max_plain_attributes
        ):
            attributes.pop(key, None)  # the latest comes last, as in the SDK: the first is dropped beyond the limit
            attributes[key] = value
        else:
            self.attributes = self._bounded(attributes)
            self.attributes[key] = value

    @override
    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        if _are_plain(attributes):
            for key, value in attributes.items():
                self.set_attribute(key, value)
        elif not self._has_ended("set_attributes"):
            self.attributes = bounded = self._bounded(self.attributes)
            # As the SDK's span does. One by one they would be cleaned twice: a text made of another type, and then cut.
            bounded._set_items(attributes)  # noqa: SLF001

    @override
    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        if self._has_ended("add_event"):
            return
        limits = self._origin.limits
        if self._events is None:
            self._events = BoundedList(limits.max_events)
        bounded = BoundedAttributes(limits.max_event_attributes, attributes, max_value_len=limits.max_attribute_length)
        self._events.append(Event(name, bounded, timestamp))

    @override
    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        if self._has_ended("add_link") or not (context.is_valid or attributes or context.trace_state):
            return
        limits = self._origin.limits
        if self._links is None:
            self._links = BoundedList(limits.max_links)
        bounded = BoundedAttributes(limits.max_link_attributes, attributes, max_value_len=limits.max_attribute_length)
        self._links.append(Link(context, bounded))

    @override
    def update_name(self, name: str) -> None:
        if not self._has_ended("update_name"):
            self.name = name

    @override
    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        if self._has_ended("set_status"):
            return
        new = status if isinstance(status, Status) else Status(status, description)
        if self.status.status_code is not StatusCode.OK and not new.is_unset:
            self.status = new

    @override
    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        # Uses nothing of the span but add_event.
        SdkSpan.record_exception(cast("SdkSpan", self), exception, attributes, timestamp, escaped)

    @override
    def end(self, end_time: int | None = None) -> None:
        if self._has_ended("end"):
            return
        self.end_time = time_ns() if end_time is None else end_time
        if self.context.trace_flags.sampled:
            self._origin.export(self)

    @override
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if exc_val is not None and self.is_recording():
            if self._record_exception:
                self.record_exception(exc_val, escaped=True)
            if self._set_status_on_exception:
                self.set_status(StatusCode.ERROR, f"{type(exc_val).__name__}: {exc_val}")
        self.end()

    def _has_ended(self, call: str) -> bool:
        if self.end_time is None:
            return False
        log.warning("span has ended", span=self.name, call=call)
        return True

    def _bounded(self, attributes: Mapping[str, AnyValue]) -> BoundedAttributes:
        if isinstance(attributes, BoundedAttributes):
            return attributes
        limits = self._origin.limits
        return BoundedAttributes(
            limits.max_span_attributes,
            attributes,
            immutable=False,
            max_value_len=limits.max_span_attribute_length,
        )


def _are_plain(attributes: Mapping[str, AnyValue]) -> bool:
    return (
        _PLAIN_TYPES.issuperset(map(type, attributes.values()))
        and _STRING.issuperset(map(type, attributes))
        and "" not in attributes
    )
