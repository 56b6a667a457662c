from functools import partial

import pytest

from chassis.telemetry import semconv
from shop_cli.control_room.drawings import places, sparkline
from shop_cli.local.call_figures import EXPORT_SECONDS, CallFigures, Figures
from shop_cli.local.spans import Span
from shop_kit.spans import NOW
from shop_kit.spans import span as finished

CHARGE = "shop.PaymentService/Charge"

span = partial(finished, milliseconds=10, ended=NOW - EXPORT_SECONDS)


def counted(*spans: Span) -> CallFigures:
    figures = CallFigures()
    for found in spans:
        figures.count(found)
    return figures


def test_the_figures_of_a_service_cover_the_last_minute() -> None:
    spans = [span(milliseconds=1_000, ended=NOW - 70), *[span()] * 99, span(milliseconds=100, failed=True)]
    figures = counted(*spans).of_service("cart", NOW)
    assert [figures.rate, figures.error_rate] == pytest.approx([100 / 60, 1 / 60])
    assert [figures.p50_milliseconds, figures.p99_milliseconds] == pytest.approx([10, 10], rel=0.06)
    assert counted(*spans).of_service("payment", NOW) == Figures()


def test_the_course_of_the_minute_is_in_slices_of_five_seconds() -> None:
    figures = counted(*[span(milliseconds=20, ended=NOW - 61)] * 10, span()).of_service("cart", NOW)
    assert figures.rates == (2, *[0] * 10, 0.2)
    assert figures.p99s == pytest.approx((20, *[0] * 10, 10), rel=0.06)


def test_old_seconds_are_forgotten() -> None:
    figures = counted(*(span(ended=NOW + second) for second in range(1_000)))
    assert len(figures._served["cart"]) <= 121


def test_calls_of_all_methods_are_those_of_the_caller_and_the_service_that_serves_them() -> None:
    served = [span("payment", CHARGE), span("payment", "shop.PaymentService/Void")]
    made = [span("checkout", call.name, "CLIENT") for call in served]
    figures = counted(*served, *made).of_calls(NOW)
    assert list(figures) == [("checkout", "payment")]
    assert figures["checkout", "payment"].rate == pytest.approx(2 / 60)


def test_failed_calls_of_a_service_that_has_ended_are_shown() -> None:
    served = span("payment", CHARGE, ended=NOW - 300)
    figures = counted(served, span("checkout", CHARGE, "CLIENT", failed=True)).of_calls(NOW)
    assert figures["checkout", "payment"].error_rate == pytest.approx(1 / 60)


@pytest.mark.parametrize(("system", "calls"), [("postgresql", ["postgres"]), ("redis", ["valkey"]), ("sqlite", [])])
def test_a_store_has_the_figures_its_clients_see_unless_it_is_in_their_process(system: str, calls: list[str]) -> None:
    figures = counted(span("payment", "INSERT charges", "CLIENT", attributes={semconv.DB_SYSTEM: system}))
    assert list(figures.of_calls(NOW)) == [("payment", store) for store in calls]
    for store in calls:
        assert figures.of_service(store, NOW).p99_milliseconds == pytest.approx(10, rel=0.06)


def test_every_call_on_the_map_leads_to_the_right_unless_services_call_each_other() -> None:
    calls = [("checkout", "cart"), ("email", "product-catalog"), ("checkout", "email"), ("storefront", "checkout")]
    placed = places([*calls, ("storefront", "product-catalog")])
    assert all(placed[caller][0] < placed[callee][0] for caller, callee in calls)
    assert len(set(placed.values())) == len(placed) == 5
    assert all(0 < x < 100 and y > 11 for x, y in placed.values())
    assert set(places([("a", "b"), ("b", "a")])) == {"a", "b"}


def test_a_line_has_its_highest_value_on_top() -> None:
    assert sparkline((0, 2, 1)) == "0,15.0 30,1.0 60,8.0"
    assert sparkline((0, 0, 0)) == "0,15.0 30,15.0 60,15.0"
