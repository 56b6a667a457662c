import asyncio
from io import StringIO

import pytest
from rich.console import Console

from chassis.telemetry import otlp, semconv
from shop_cli.local.otlp_receiver import exporting_to
from shop_cli.local.spans import Span
from shop_cli.output.trace_tree import trace_tree
from shop_kit.received_telemetry import receiving


def span(name: str, span_id: str, parent_id: str = "", kind: str = "SERVER", **attributes: str) -> Span:
    start = int(span_id) * 1_000_000
    return Span("s" + span_id, "", "t", span_id, parent_id, name, kind, start, 20_000_000, {**attributes}, failed=False)


def rendered(*spans: Span, width: int = 120) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(trace_tree(spans, width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_nested_call_is_a_branch_of_its_caller_with_service_method_and_milliseconds() -> None:
    lines = rendered(span("shop.A/Do", "1"), span("shop.B/Help", "2", parent_id="1"))
    assert lines[1].split() == ["└──", "s1", "A/Do", "19.0", "ms"]
    assert lines[2].startswith("    └── s2 B/Help")


def test_client_and_server_spans_of_a_call_are_one_line_with_the_duration_of_the_client() -> None:
    lines = rendered(span("A", "1"), span("B", "2", parent_id="1", kind="CLIENT"), span("B", "3", parent_id="2"))
    assert lines[0] == "2 calls, 19.0 ms"
    assert [line.split()[-4:] for line in lines[1:]] == [["s1", "A", "19.0", "ms"], ["s3", "B", "18.0", "ms"]]


def test_statements_and_waits_are_counted_apart_and_long_names_leave_the_column_of_durations_straight() -> None:
    statement = span("SELECT " + "orders " * 9, "2", "1", "CLIENT", **{semconv.DB_SYSTEM: "sqlite"})
    lines = rendered(span("A", "1"), statement, span("B", "3", "1", "INTERNAL"))
    assert lines[0] == "1 call, 1 statement, 1 wait, 19.0 ms"
    assert len({line.index(" ms") for line in lines[1:]}) == 1


def test_on_a_narrow_terminal_long_methods_are_shown_without_their_service() -> None:
    nested = span("shop.ProductCatalogService/GetProduct", "2", parent_id="1")
    lines = rendered(span("shop.A/Do", "1"), nested, width=40)
    assert [line.split() for line in lines[1:]] == [
        ["└──", "s1", "A/Do", "19.0", "ms"],
        ["└──", "s2", "GetProduct", "18.0", "ms"],
    ]


async def test_exported_spans_and_metrics_are_recorded(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name, value in exporting_to(port).items():
        monkeypatch.setenv(name, value)
    async with receiving(port) as received:
        telemetry = otlp.configure("ad")
        with (
            telemetry.tracer.start_as_current_span("work", attributes={"lines": 3}),
            pytest.raises(ZeroDivisionError),
            telemetry.tracer.start_as_current_span("part"),
        ):
            raise ZeroDivisionError
        await asyncio.to_thread(telemetry.shutdown)
    part, work = received.spans
    assert (work.service, work.name, work.attributes, work.parent_id, work.failed) == (
        "ad", "work", {"lines": 3}, "", False,
    )  # fmt: skip
    assert (part.name, part.kind, part.trace_id, part.parent_id, part.failed) == (
        "part", "INTERNAL", work.trace_id, work.span_id, True,
    )  # fmt: skip
    assert work.started_nanos <= part.started_nanos <= part.ended_nanos <= work.ended_nanos
    assert ("ad", "process.memory.usage") in {(service, metric.name) for service, metric in received.metrics}
