from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context as OtelContext
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from chassis.rpc import client
from chassis.telemetry import logging as chassis_logging
from chassis.telemetry import propagation
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts, Context
from shop_kit.serving import Recorded, connect, serve

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
OTHER_UNSAMPLED = f"00-{TRACE[::-1]}-{SPAN}-00"
SESSION = {"session.id": "5f3a", "synthetic_request": "true"}
BAGGAGE = "session.id=5f3a,synthetic_request=true,experiment=blue"


class Chained(Carts):
    """GetCart calls the next service, if any; the last service returns the baggage that it receives.

    Attributes:
        received: the trace contexts of the calls so far.
        add_baggage: a baggage member that GetCart adds before it calls the next service again.
    """

    def __init__(self, following: Any = None) -> None:
        super().__init__(self.answer)
        self.following = following
        self.received: list[str] = []
        self.add_baggage = ""

    async def answer(self, context: Context) -> cart_pb2.Cart:
        structlog.get_logger().info("called")
        metadata = dict(context.invocation_metadata() or ())
        self.received.append(str(metadata.get("traceparent", "")))
        if self.following is None:
            return cart_pb2.Cart(user_id=str(metadata.get("baggage", "")))
        request = cart_pb2.GetCartRequest()
        reply = await self.following.GetCart(request)
        if self.add_baggage:
            propagation.add_baggage(self.add_baggage, "added")
            reply = await self.following.GetCart(request)
        return cart_pb2.Cart(user_id=reply.user_id)


@asynccontextmanager
async def serving_chain(telemetry: Telemetry) -> AsyncIterator[tuple[grpc.aio.Channel, Chained, Chained]]:
    """Serve two services, the first of which calls the second. Yield a channel to the first, and both services."""
    second = Chained()
    async with serve(second, telemetry=telemetry) as last:
        between = client.channel(last, "shop.CartService", timeout_seconds=60, telemetry=telemetry)
        first = Chained(cart_pb2_grpc.CartServiceStub(between))
        async with connect(first, telemetry=telemetry) as channel:
            yield channel, first, second
        await between.close()


async def call(channel: grpc.aio.Channel, **metadata: str) -> str:
    """Call GetCart, and return the baggage that the last service received."""
    stub = cart_pb2_grpc.CartServiceStub(channel)
    return (await stub.GetCart(cart_pb2.GetCartRequest(), metadata=[*metadata.items()])).user_id


async def test_baggage_passes_through_a_service_and_some_of_it_is_in_every_span(recorded: Recorded) -> None:
    async with serving_chain(recorded.telemetry) as (channel, _, _):
        assert sorted((await call(channel, baggage=BAGGAGE)).split(",")) == sorted(BAGGAGE.split(","))
    attributes = [dict(span.attributes or {}) for span in recorded.spans()]
    assert [{name: found.get(name) for name in (*SESSION, "experiment")} for found in attributes] == [
        {**SESSION, "experiment": None}
    ] * 3


async def test_an_unsampled_trace_passes_through_without_spans_and_with_baggage_that_a_service_adds(
    recorded: Recorded,
) -> None:
    async with serving_chain(recorded.telemetry) as (channel, first, second):
        assert await call(channel, traceparent=UNSAMPLED, baggage="experiment=blue") == "experiment=blue"
        assert (first.received, second.received) == ([UNSAMPLED], [UNSAMPLED])
        with structlog.testing.capture_logs(processors=[chassis_logging._add_trace_ids]) as lines:
            assert await call(channel, traceparent=OTHER_UNSAMPLED) == ""
        assert [(line["trace_id"], line["span_id"]) for line in lines] == [(TRACE[::-1], SPAN)] * 2
        assert second.received == [UNSAMPLED, OTHER_UNSAMPLED]
        first.add_baggage = "experiment"
        assert await call(channel, traceparent=UNSAMPLED) == "experiment=added"
        assert second.received[2:] == [UNSAMPLED, UNSAMPLED]
    assert recorded.spans() == []


def test_a_random_id_is_not_taken_for_a_card_number() -> None:
    found = propagation.W3C.extract([("traceparent", f"00-{TRACE}-4242424242424242-01")])
    assert trace.get_current_span(found).get_span_context().span_id == 0x4242424242424242


async def test_a_sampler_that_ignores_parents_samples_calls_of_an_unsampled_trace(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded.telemetry.tracer, "sampler", ALWAYS_ON)
    async with serving_chain(replace(recorded.telemetry, follows_parents=False)) as (channel, _, second):
        await call(channel, traceparent=UNSAMPLED)
        assert second.received[0].startswith(f"00-{TRACE}-")
        assert second.received[0].endswith("-01")
    assert len(recorded.spans()) == 3


@pytest.mark.parametrize(
    "header", ["session.id=" + "x" * 2048, "session.id", "=5f3a", ";,;", "session.id=\u00e4", "4242424242424242"]
)
def test_overlong_or_malformed_baggage_is_ignored_and_not_logged(header: str, caplog: pytest.LogCaptureFixture) -> None:
    context = propagation.W3C.extract([("baggage", header)])
    assert propagation.baggage_attributes(context) == {}
    assert caplog.records == []


def test_baggage_that_is_added_is_an_attribute_of_the_current_span(recorded: Recorded) -> None:
    token = otel_context.attach(OtelContext())
    with recorded.telemetry.tracer.start_as_current_span("page"):
        propagation.add_baggage("session.id", "5f3a")
        propagation.add_baggage("experiment", "blue")
        headers = propagation.W3C.inject()
    otel_context.detach(token)
    assert dict(recorded.spans()[0].attributes or {}) == {"session.id": "5f3a"}
    assert headers["baggage"] == "session.id=5f3a,experiment=blue"


def sampled_context() -> OtelContext:
    span = SpanContext(int(TRACE, 16), int(SPAN, 16), True, TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(span), OtelContext())


@pytest.mark.parametrize(
    ("names", "headers"),
    [
        ("b3", {"b3": f"{TRACE}-{SPAN}-1"}),
        ("b3multi", {"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "1"}),
        ("jaeger", {"uber-trace-id": f"{TRACE}:{SPAN}:{0:016}:03"}),
        ("tracecontext", {"traceparent": f"00-{TRACE}-{SPAN}-01"}),
        ("tracecontext, b3", {"traceparent": f"00-{TRACE}-{SPAN}-01", "b3": f"{TRACE}-{SPAN}-1"}),
    ],
)
async def test_a_call_has_the_headers_of_the_chosen_propagators(
    names: str, headers: dict[str, str], recorded: Recorded
) -> None:
    chosen = propagation.load_propagation(names)
    assert chosen.inject(sampled_context()) == headers
    telemetry = replace(recorded.telemetry, propagation=chosen)
    async with serve(Carts(), telemetry=telemetry) as address:
        channel = client.channel(address, "shop.CartService", timeout_seconds=60, telemetry=telemetry)
        async with grpc.aio.insecure_channel(address) as plain:
            await cart_pb2_grpc.CartServiceStub(plain).GetCart(cart_pb2.GetCartRequest(), metadata=[*headers.items()])
        await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest())
        await channel.close()
    received, served, called = recorded.spans()
    assert received.parent is not None
    assert (received.context.trace_id, received.parent.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert served.parent is not None
    assert served.parent.span_id == called.context.span_id


def test_none_neither_reads_nor_sends_headers() -> None:
    chosen = propagation.load_propagation("none")
    assert (chosen.headers, chosen.inject(sampled_context())) == (frozenset(), {})


def test_overlong_baggage_is_ignored_beside_other_propagators() -> None:
    chosen = propagation.load_propagation("b3,baggage")
    for length, expected in ((10, {"session.id": "x" * 10}), (2048, {})):
        context = chosen.extract([("baggage", "session.id=" + "x" * length), ("b3", f"{TRACE}-{SPAN}-1")])
        assert propagation.baggage_attributes(context) == expected
        assert trace.get_current_span(context).get_span_context().span_id == int(SPAN, 16)
