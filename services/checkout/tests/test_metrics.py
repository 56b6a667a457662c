"""What is counted when orders are placed, repeated, refused and recovered, and what the spans of later work link to."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext

from chassis.errors import FailedPrecondition, InvalidArgument, Unavailable
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.values.money import Money
from checkout_service.domain import State
from checkout_service.journal import sql
from checkout_service.metrics import MAX_CURRENCIES, OTHER_CURRENCY, OrderMetrics
from checkout_service.order_spans import current_traceparent, links_to
from checkout_service.ports import EMAIL, EMPTY_CART, Statistics
from checkout_service.reconciliation.__main__ import _report_mismatches, _report_totals
from checkout_service.reconciliation.reader import Comparison
from checkout_service.reconciliation.rules import Kind, Mismatch
from shop_kit.checkouts import Start
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.metrics import Series, measured
from shop_kit.orders import new_order
from shop_kit.serving import Recorded
from shop_kit.waiting import wait_until

EUR = ((semconv.ORDER_CURRENCY, "EUR"),)
DONE = ((semconv.ORDER_STATE, State.DONE.value),)


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", 1)


def values(recorded: Recorded, metric: semconv.Metric) -> dict[Attributes, float]:
    return recorded.telemetry.counter(metric).values


async def until_done(recorded: Recorded) -> None:
    await wait_until(lambda: values(recorded, semconv.ORDER_CHANGES).get(DONE) == 1)


def spans_of(recorded: Recorded, name: str) -> list[ReadableSpan]:
    return [span for span in recorded.spans() if span.name == name]


def ids(context: SpanContext | None) -> tuple[int, int]:
    """Return trace and span of a context."""
    assert context is not None
    return context.trace_id, context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [ids(link.context) for link in span.links]


async def test_a_placed_order_is_counted_once_with_its_total_and_has_a_span(start: Start, recorded: Recorded) -> None:
    async with start(recorded.telemetry) as checkout:
        order_id = (await checkout.place("key")).response.order.order_id
        await checkout.place("key")
    assert values(recorded, semconv.ORDERS_PLACED) == {EUR: 1}
    assert values(recorded, semconv.REVENUE) == {EUR: 45.95}
    assert values(recorded, semconv.ORDERS_RECOVERED) == {(): 0}
    first, again = (
        {name: value for name, value in (span.attributes or {}).items() if name.startswith("shop.order.")}
        for span in spans_of(recorded, "shop.CheckoutService/PlaceOrder")
    )
    assert first == {
        "shop.order.id": order_id,
        "shop.order.currency": "EUR",
        "shop.order.total": 45.95,
        "shop.order.item_count": 1,
        "shop.order.attempt": 1,
        "shop.order.replayed": False,
    }
    assert again == {**first, "shop.order.replayed": True}


async def test_a_recovered_order_counts_once_and_its_recovery_links_to_the_call_that_began_it(
    start: Start, recorded: Recorded
) -> None:
    faults = "checkout.charge.after=error*1,checkout.take_over.after=error*1"
    async with start(recorded.telemetry, lease_seconds=1, failpoints=faults) as checkout:
        await checkout.refused("key")
        await until_done(recorded)
    assert values(recorded, semconv.ORDERS_PLACED) == {EUR: 1}
    assert values(recorded, semconv.REVENUE) == {EUR: 45.95}
    assert values(recorded, semconv.ORDERS_RECOVERED) == {(): 1}
    (began,) = spans_of(recorded, "shop.CheckoutService/PlaceOrder")
    *_, recovery = spans_of(recorded, "recover order")
    (shipped,) = spans_of(recorded, "shop.ShippingService/ShipOrder")
    assert linked(recovery) == [ids(began.context)]
    assert (recovery.attributes or {})[semconv.ORDER_ID] == (began.attributes or {})[semconv.ORDER_ID]
    assert (recovery.attributes or {})[semconv.ORDER_CURRENCY] == "EUR"
    assert ids(shipped.parent) == ids(recovery.context)


async def test_a_refused_order_is_no_revenue(peers: FakePeers, start: Start, recorded: Recorded) -> None:
    peers.payment.faults["Charge"] = Fault(FailedPrecondition("expired", reason="CARD_EXPIRED"))
    async with start(recorded.telemetry) as checkout:
        for _ in range(2):
            await checkout.refused("key")
    assert values(recorded, semconv.ORDERS_PLACED) == values(recorded, semconv.REVENUE) == {}
    first, again = (span.attributes or {} for span in spans_of(recorded, "shop.CheckoutService/PlaceOrder"))
    assert first[semconv.ORDER_ID] == again[semconv.ORDER_ID]
    assert (first[semconv.ORDER_REPLAYED], again[semconv.ORDER_REPLAYED]) == (False, True)


async def test_the_span_of_a_call_that_waits_in_vain_names_the_order(
    peers: FakePeers, start: Start, recorded: Recorded
) -> None:
    async with start(recorded.telemetry) as checkout, peers.payment.holding("Charge", checkout.place("key")):
        await checkout.refused_at_deadline("key")
    in_vain, placed = (span.attributes or {} for span in spans_of(recorded, "shop.CheckoutService/PlaceOrder"))
    assert (in_vain.get(semconv.ORDER_ID), in_vain.get(semconv.ORDER_REPLAYED)) == (placed[semconv.ORDER_ID], True)


async def test_a_step_tried_again_counts_by_its_name(peers: FakePeers, start: Start, recorded: Recorded) -> None:
    peers.payment.faults["Charge"] = Fault(Unavailable("down"), times=2)
    peers.shipping.faults["ShipOrder"] = Fault(Unavailable("down"), times=1)
    async with start(recorded.telemetry) as checkout:
        await checkout.place("key")
    retries = values(recorded, semconv.ORDER_RETRIES)
    assert retries == {((semconv.ORDER_STEP, "charge"),): 2, ((semconv.ORDER_STEP, "ship"),): 1}


async def test_an_unknown_currency_is_refused_and_counted_nowhere(start: Start, recorded: Recorded) -> None:
    async with start(recorded.telemetry) as checkout:
        assert type(await checkout.refused("key", user_currency="XQX")) is InvalidArgument
    assert values(recorded, semconv.ORDERS_PLACED) == values(recorded, semconv.REVENUE) == {}
    (span,) = spans_of(recorded, "shop.CheckoutService/PlaceOrder")
    assert (span.attributes or {})[semconv.ORDER_CURRENCY] == "XQX"
    assert (span.attributes or {})[semconv.ORDER_ITEM_COUNT] == 1


async def test_notifications_sent_later_have_traces_that_link_to_the_call_that_began_their_order(
    peers: FakePeers, start: Start, recorded: Recorded
) -> None:
    peers.confirmations.faults["AcceptConfirmations"] = Fault(Unavailable("down"), times=2)
    async with start(recorded.telemetry) as checkout:
        order_id = (await checkout.place()).response.order.order_id
        await until_done(recorded)
    (began,) = spans_of(recorded, "shop.CheckoutService/PlaceOrder")
    failed, sent = spans_of(recorded, "send notification")
    assert linked(failed) == linked(sent) == [ids(began.context)]
    assert (failed.attributes or {})[semconv.ERROR_REASON] == "UNAVAILABLE"
    assert sent.attributes == {
        semconv.ORDER_ID: order_id,
        semconv.NOTIFICATION_KIND: "email",
        semconv.NOTIFICATION_FAILURES: 1,
    }
    calls = spans_of(recorded, "shop.internal.Confirmations/AcceptConfirmations")
    assert ids(sent.context) in {ids(call.parent) for call in calls}


def test_the_context_of_a_span_that_is_not_sampled_is_not_stored() -> None:
    with TracerProvider(ALWAYS_OFF).get_tracer("test").start_as_current_span("unsampled"):
        assert current_traceparent() == ""
    with TracerProvider().get_tracer("test").start_as_current_span("sampled") as span:
        assert [link.context.span_id for link in links_to(current_traceparent())] == [span.get_span_context().span_id]
    assert links_to("") == links_to("no context") == []
    assert links_to("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00") == []
    assert current_traceparent() == ""
    assert not trace.get_current_span().is_recording()


def test_the_currencies_of_metrics_are_bounded() -> None:
    telemetry = Telemetry()
    metrics = OrderMetrics(telemetry)
    codes = [f"{number:03d}" for number in range(MAX_CURRENCIES + 50)]
    for code in [*codes, codes[0], codes[-1]]:
        metrics.record_placed(new_order(shipping_cost=Money.of(code, 2), lines=()).order)
    placed = telemetry.counter(semconv.ORDERS_PLACED).values
    revenue = telemetry.counter(semconv.REVENUE).values
    assert len(placed) == len(revenue) == MAX_CURRENCIES + 1
    assert placed[((semconv.ORDER_CURRENCY, codes[0]),)] == 2
    assert placed[((semconv.ORDER_CURRENCY, OTHER_CURRENCY),)] == 51
    assert revenue[((semconv.ORDER_CURRENCY, OTHER_CURRENCY),)] == 102


@pytest.mark.parametrize("hours_read", [None, 1.0])
def test_a_reconciliation_exports_its_result_for_every_kind_unless_it_is_incomplete(hours_read: float | None) -> None:
    telemetry, read = measured()
    mismatches = [Mismatch(Kind.CHARGED_TWICE, "order", "DONE", 0.0, "two charges")]
    for report in (_report_mismatches, _report_totals):
        report(Comparison(charges=2, shipments=1, mismatches=mismatches, hours_read=hours_read), telemetry)
    rest: dict[Series, float] = {(semconv.MISMATCHES.name, (semconv.MISMATCH_KIND, kind.value)): 0 for kind in Kind}
    rest[(semconv.RECONCILED_ORDERS.name,)] = 0
    found: dict[Series, float] = {(semconv.MISMATCHES.name, (semconv.MISMATCH_KIND, "CHARGED_TWICE")): 1}
    assert read() == ({} if hours_read else rest) | found


def test_gauges_and_counters_are_exported() -> None:
    telemetry, read = measured()
    metrics = OrderMetrics(telemetry)
    metrics.record_change("id", State.SHIPPED)
    metrics.statistics = Statistics(
        {State.CHARGING: 2, State.NEEDS_REFUND: 1}, 12.5, 3, {EMAIL: 4}, 5, 6.5, {State.NEEDS_REFUND: 9}
    )
    unfinished = {"CHARGING": 2, "VOIDING": 0, "SHIPPED": 0, "NEEDS_REFUND": 1, "NEEDS_REVIEW": 0}
    expected: dict[Series, float] = {
        **{("shop.orders.unfinished", (semconv.ORDER_STATE, state)): count for state, count in unfinished.items()},
        ("shop.orders.needs_operator.age", (semconv.ORDER_STATE, "NEEDS_REFUND")): 9,
        ("shop.orders.needs_operator.age", (semconv.ORDER_STATE, "NEEDS_REVIEW")): 0,
        ("shop.orders.oldest_open.age",): 12.5,
        ("shop.outbox.backlog",): 3,
        ("shop.outbox.oldest.age",): 6.5,
        ("shop.outbox.dead_letters", (semconv.NOTIFICATION_KIND, EMAIL)): 4,
        ("shop.outbox.dead_letters", (semconv.NOTIFICATION_KIND, EMPTY_CART)): 0,
        ("shop.orders.future",): 5,
        ("shop.orders.changes", (semconv.ORDER_STATE, "SHIPPED")): 1,
    }
    points = read()
    assert {point: points.get(point) for point in expected} == expected
