"""The same calls on a span of the SDK and on ours are exported as the same bytes, but for times."""

import random
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_exporter
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracer,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from chassis.telemetry.otlp_encoder import encode
from chassis.telemetry.otlp_exporters import open_exporters
from chassis.telemetry.otlp_spans import Span as LeanSpan
from chassis.telemetry.otlp_tracer import TracerProvider

RESOURCE = Resource({"service.name": "cart"})
STATE = TraceState([("vendor", "1"), ("other", "2")])
REMOTE = SpanContext(7, 8, True, TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID), STATE)
LOCAL = SpanContext(7, 9, False, TraceFlags(TraceFlags.SAMPLED))
NOT_SAMPLED = SpanContext(7, 10, True, TraceFlags(TraceFlags.DEFAULT), STATE)
INVALID = SpanContext(0, 0, False)
INVALID_WITH_STATE = SpanContext(0, 0, False, TraceFlags(), STATE)

LIMITS = {
    "no limit": {},
    "counts": {
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "3",
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1",
        "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "1",
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "1",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "1",
    },
    "counts of zero": {
        "OTEL_ATTRIBUTE_COUNT_LIMIT": "0",
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "0",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "0",
    },
    "lengths": {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "2"},
}
SAMPLERS = [
    {"OTEL_TRACES_SAMPLER": "parentbased_always_on"},
    {"OTEL_TRACES_SAMPLER": "parentbased_always_off"},
    {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
    {"OTEL_TRACES_SAMPLER": "always_on"},
    {"OTEL_TRACES_SAMPLER": "always_off"},
    {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
]

Record = Callable[[trace.TracerProvider], None]


def exported(record: Record, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return what the SDK and ours export of the same calls."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        memory, spans = InMemorySpanExporter(), list[LeanSpan]()
        sdk = SdkTracerProvider(resource=RESOURCE, shutdown_on_exit=False)
        sdk.add_span_processor(SimpleSpanProcessor(memory))
        for provider in (sdk, TracerProvider(RESOURCE, spans.append)):
            random.seed(7)  # of the generator of ids
            provider.get_tracer("shop").start_span("first").end()  # the encoders are the same for a scope's first span
            record(provider)
    return without_times(encode_spans(memory.get_finished_spans())), without_times(encode(spans))


def without_times(request: ExportTraceServiceRequest) -> str:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
                span.ClearField("start_time_unix_nano")
                span.ClearField("end_time_unix_nano")
                for event in span.events:
                    event.ClearField("time_unix_nano")
    return str(request)


def context_of(parent: SpanContext | None) -> Context:
    return Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())


class Unprintable:
    __slots__ = ()


class Text(str):
    __slots__ = ()


keys: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "c", "d", "e", "", 7, Text("t")])
values: st.SearchStrategy[Any] = st.sampled_from(
    [
        *("text", "", "long text", Text("subclass"), b"bytes", "\ud800"),
        *(7, -1, 2**63, 0.5, float("inf"), True, False, None, Unprintable(), StatusCode.OK),
        *([], ["x", "long"], (1, 2), [1, "mixed", None], {"k": {"n": [1]}}, [Unprintable()]),
    ]
)
plain_keys: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "c", "d"])
plain_values: st.SearchStrategy[Any] = st.sampled_from(["text", 7, 0.5, True])
attributes = (
    st.dictionaries(plain_keys, plain_values, max_size=5) | st.dictionaries(keys, values, max_size=5) | st.none()
)
contexts = st.sampled_from([REMOTE, LOCAL, NOT_SAMPLED, INVALID, INVALID_WITH_STATE])
descriptions = st.sampled_from([None, "", "why"])
statuses = st.builds(Status, st.sampled_from(StatusCode), descriptions)
names = st.sampled_from(["one", "two"])
calls = st.lists(
    st.one_of(
        st.tuples(st.just("set_attribute"), plain_keys, plain_values),
        st.tuples(st.just("set_attribute"), keys, values),
        st.tuples(st.just("set_attributes"), attributes.filter(lambda chosen: chosen is not None)),
        st.tuples(st.just("add_event"), names, attributes),
        st.tuples(st.just("add_event"), names, attributes, st.just(7)),
        st.tuples(st.just("add_link"), contexts, attributes),
        st.tuples(st.just("update_name"), names),
        st.tuples(st.just("set_status"), statuses),
        st.tuples(st.just("set_status"), st.sampled_from(StatusCode), descriptions),
        st.tuples(st.just("record_exception"), st.just(ValueError("why")), attributes),
        st.tuples(st.just("end")),
        st.tuples(st.just("is_recording")),
    ),
    max_size=8,
)
starts = st.fixed_dictionaries(
    {
        "name": names,
        "kind": st.sampled_from(SpanKind),
        "attributes": attributes,
        "links": st.lists(st.tuples(contexts, attributes), max_size=3) | st.none(),
        "parent": st.none() | contexts,
    }
)


def start(tracer: trace.Tracer, parent: SpanContext | None, links: Any, **arguments: Any) -> Span:
    links = None if links is None else [Link(*link) for link in links]
    return tracer.start_span(context=context_of(parent), links=links, **arguments)


@given(starts, calls, st.sampled_from(sorted(LIMITS)), st.sampled_from(SAMPLERS))
@example(
    {"name": "one", "kind": SpanKind.INTERNAL, "attributes": None, "links": None, "parent": None},
    [("set_attributes", {"a": StatusCode.OK})],
    "lengths",
    SAMPLERS[0],
)
@settings(max_examples=300)
def test_any_calls_are_exported_as_those_on_a_span_of_the_sdk(
    arguments: dict[str, Any], sequence: list[tuple[Any, ...]], limits: str, sampler: dict[str, str]
) -> None:
    results: list[list[object]] = []

    def record(provider: trace.TracerProvider) -> None:
        span = start(provider.get_tracer("shop"), **arguments)
        context = span.get_span_context()
        returned = [getattr(span, method)(*rest) for method, *rest in sequence]
        span.end()
        results.append([context, *returned, span.is_recording()])

    sdk, ours = exported(record, {**LIMITS[limits], **sampler})
    assert ours == sdk
    assert results[0] == results[1]


@pytest.mark.parametrize("ratio", ["0", "0.3", "1"])
def test_roots_are_sampled_by_ratio_as_by_the_sdk(ratio: str) -> None:
    results: list[list[SpanContext]] = []

    def record(provider: trace.TracerProvider) -> None:
        results.append([provider.get_tracer("shop").start_span("root").get_span_context() for _ in range(200)])

    exported(record, {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio})
    assert results[0] == results[1]


def fail() -> None:
    raise ValueError("why")


def in_a_span(provider: trace.TracerProvider, **options: Any) -> None:
    with provider.get_tracer("shop").start_span("span", **options):
        fail()


def in_a_current_span(provider: trace.TracerProvider, **options: Any) -> None:
    with provider.get_tracer("shop").start_as_current_span("span", **options) as span:
        assert trace.get_current_span() is span
        fail()


@pytest.mark.parametrize("options", [{}, {"record_exception": False}, {"set_status_on_exception": False}])
@pytest.mark.parametrize("run", [in_a_span, in_a_current_span])
def test_an_exception_within_a_span_is_recorded_as_by_the_sdk(
    run: Callable[..., None], options: dict[str, bool]
) -> None:
    def record(provider: trace.TracerProvider) -> None:
        with pytest.raises(ValueError, match="why"):
            run(provider, **options)

    sdk, ours = exported(record, {})
    assert ours == sdk
    assert ("exception.stacktrace" in ours) == options.get("record_exception", True)


@pytest.mark.parametrize("limits", LIMITS)
def test_plain_attributes_are_exported_as_by_the_sdk(limits: str) -> None:
    def record(provider: trace.TracerProvider) -> None:
        for count in range(5):
            span = provider.get_tracer("shop").start_span(
                "span", attributes={f"{number}": 1 for number in range(count)}
            )
            for key in ("1", "2", "new", "1", "3"):
                span.set_attribute(key, "changed")
            span.end()

    sdk, ours = exported(record, LIMITS[limits])
    assert ours == sdk


def test_scopes_are_exported_as_by_the_sdk() -> None:
    def record(provider: trace.TracerProvider) -> None:
        for name, version, attributes in [("shop", "1", None), ("shop", None, None), ("library", "2", {"a": 1})] * 2:
            tracer = provider.get_tracer(name, version, f"https://{name}", attributes)
            tracer.start_span("span", attributes={"a": "b"}).end()

    sdk, ours = exported(record, {})
    assert ours == sdk


def test_given_times_are_kept() -> None:
    spans: list[LeanSpan] = []
    tracer = TracerProvider(RESOURCE, spans.append).get_tracer("shop")
    for _ in range(2):  # the first span of a scope is encoded by OpenTelemetry's encoder
        tracer.start_span("span", start_time=7).end(8)
    encoded = encode(spans).resource_spans[0].scope_spans[0].spans
    assert [(span.start_time_unix_nano, span.end_time_unix_nano) for span in encoded] == [(7, 8), (7, 8)]


def test_a_change_of_the_callers_attributes_does_not_change_the_span() -> None:
    spans: list[LeanSpan] = []
    mine = {"a": 1}
    started = TracerProvider(RESOURCE, spans.append).get_tracer("shop").start_span("span", attributes=mine)
    mine["a"] = 2
    started.set_attribute("b", 3)
    started.end()
    assert dict(spans[0].attributes) == {"a": 1, "b": 3}
    assert mine == {"a": 2}


def test_the_sdk_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert isinstance(TracerProvider(RESOURCE, lambda _span: None).get_tracer("shop"), NoOpTracer)


@pytest.mark.parametrize(("protocol", "module"), [("grpc", grpc_exporter), ("http/protobuf", http_exporter)])
def test_exporters_encode_as_we_do(protocol: str, module: ModuleType) -> None:
    open_exporters(protocol)
    assert module.encode_spans is encode
