import asyncio

import pytest

from chassis.telemetry import otlp
from shop_cli.local.otlp_receiver import exporting_to
from shop_lab.world.received_telemetry import receiving


async def test_exported_spans_and_metrics_are_recorded(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name, value in exporting_to(port).items():
        monkeypatch.setenv(name, value)
    async with receiving(port) as received:
        telemetry = otlp.configure("ad")
        with telemetry.tracer.start_as_current_span("work", attributes={"lines": 3}):
            pass
        await asyncio.to_thread(telemetry.shutdown)
    (span,) = received.spans
    assert (span.service, span.name, span.attributes, span.parent_id, span.failed) == (
        "ad",
        "work",
        {"lines": 3},
        "",
        False,
    )
    assert ("ad", "process.memory.usage") in {(service, metric.name) for service, metric in received.metrics}
