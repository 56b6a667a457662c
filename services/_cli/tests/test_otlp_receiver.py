import asyncio

import pytest

from chassis.telemetry import otlp
from shop_cli.local.otlp_receiver import exporting_to
from shop_kit.received_telemetry import receiving


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
