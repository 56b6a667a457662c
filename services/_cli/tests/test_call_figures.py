"""Figures of services and of the calls between them, and how they are drawn."""

import pytest

from chassis.telemetry import semconv
from shop_cli.control_room.drawings import places, sparkline
from shop_cli.local.call_figures import EXPORT_SECONDS, CallFigures, Figures
from shop_cli.local.spans import Span

NOW = 1_800_000_000
CHARGE = "shop.PaymentService/Charge"


def span(
    service: str = "cart",
    kind: str = "SERVER",
    name: str = "shop.Cart/Get",
    milliseconds: float = 10,
    at: int = NOW - EXPORT_SECONDS,
    *,
    failed: bool = False,
    system: str = "",
) -> Span:
    attributes: dict[str, str | int | float | bool] = {semconv.DB_SYSTEM: system} if system else {}
    end = at * 10**9
    return Span(service, "", "t", "1", "", name, kind, end - int(milliseconds * 1e6), end, attributes, failed)


def counted(*spans: Span) -> CallFigures:
    figures = CallFigures()
    for each in spans:
        figures.count(each)
    return figures


def test_the_figures_of_a_service_cover_the_last_minute() -> None:
    spans = [span(milliseconds=1_000, at=NOW - 70), *[span()] * 99, span(milliseconds=100, failed=True)]
    figures = counted(*spans).of_service("cart", NOW)
    assert figures.rate == pytest.approx(100 / 60)
    assert figures.error_rate == pytest.approx(1 / 60)
    assert figures.p50_milliseconds == pytest.approx(10, rel=0.06)
    assert figures.p99_milliseconds == pytest.approx(10, rel=0.06)


def test_the_course_of_the_minute_is_in_slices_of_five_seconds() -> None:
    figures = counted(*[span(milliseconds=20, at=NOW - 61)] * 10, span()).of_service("cart", NOW)
    assert figures.rates == (2, *[0] * 10, 0.2)
    assert figures.p99s == pytest.approx((20, *[0] * 10, 10), rel=0.06)


def test_a_service_without_calls_has_no_figures() -> None:
    assert CallFigures().of_service("cart", NOW) == Figures()


def test_old_seconds_are_forgotten() -> None:
    figures = counted(*(span(at=NOW + second) for second in range(1_000)))
    assert len(figures._served["cart"]) <= 121


def test_calls_of_all_methods_are_those_of_the_caller_and_the_service_that_serves_them() -> None:
    served = [span("payment", name=CHARGE), span("payment", name="shop.PaymentService/Void")]
    made = [span("checkout", "CLIENT", call.name) for call in served]
    figures = counted(*served, *made).of_calls(NOW)
    assert list(figures) == [("checkout", "payment")]
    assert figures["checkout", "payment"].rate == pytest.approx(2 / 60)


def test_failed_calls_of_a_service_that_has_ended_are_shown() -> None:
    served = span("payment", name=CHARGE, at=NOW - 300)
    figures = counted(served, span("checkout", "CLIENT", CHARGE, failed=True)).of_calls(NOW)
    assert figures["checkout", "payment"].error_rate == pytest.approx(1 / 60)


@pytest.mark.parametrize(("system", "store"), [("postgresql", "postgres"), ("redis", "valkey")])
def test_a_store_has_the_figures_that_its_clients_see(system: str, store: str) -> None:
    figures = counted(span("payment", "CLIENT", "INSERT charges", system=system))
    assert figures.of_service(store, NOW).p99_milliseconds == pytest.approx(10, rel=0.06)
    assert list(figures.of_calls(NOW)) == [("payment", store)]


def test_a_database_in_the_process_is_no_call() -> None:
    assert counted(span("payment", "CLIENT", "INSERT charges", system="sqlite")).of_calls(NOW) == {}


def test_every_call_on_the_map_leads_to_the_right() -> None:
    calls = [("checkout", "cart"), ("email", "product-catalog"), ("checkout", "email"), ("storefront", "checkout")]
    placed = places([*calls, ("storefront", "product-catalog")])
    assert all(placed[caller][0] < placed[callee][0] for caller, callee in calls)
    assert len(set(placed.values())) == len(placed) == 5
    assert all(0 < x < 100 and y > 11 for x, y in placed.values())


def test_services_that_call_each_other_are_on_the_map() -> None:
    assert set(places([("a", "b"), ("b", "a")])) == {"a", "b"}


def test_a_line_has_its_highest_value_on_top() -> None:
    assert sparkline((0, 2, 1)) == "0,15.0 30,1.0 60,8.0"
    assert sparkline((0, 0, 0)) == "0,15.0 30,15.0 60,15.0"
