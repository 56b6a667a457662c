"""The arithmetic of the benchmarks."""

import pytest

from shop_lab.bench.ghz import Result, parse_report
from shop_lab.bench.orders import CPU, P50, RATE, Spread, figures_of, spreads


def test_a_ratio_is_the_median_of_the_ratios_within_a_turn() -> None:
    # The machine slows down from turn to turn; the ratio stays.
    turns = [{"old": {CPU: 2.0 * slow, P50: 4.0}, "new": {CPU: 1.0 * slow, P50: 2.0 * slow}} for slow in (1, 2, 3)]
    found = spreads(turns, "new", "old")
    assert found["CPU ratio"] == Spread(0.5, 0.5, 0.5)
    assert found["p50 ratio"] == Spread(0.75, 1.0, 1.25)
    assert found[CPU] == Spread(1.5, 2.0, 2.5)


def test_the_latency_of_a_turn_leaves_its_first_order_out() -> None:
    assert figures_of(Result(120, [50, 1, 2, 3]), 0.04) == {CPU: 10, P50: 2, RATE: 120}


def test_a_failed_call_ends_the_benchmark() -> None:
    report = {"statusCodeDistribution": {"OK": 1, "UNAVAILABLE": 1}, "errorDistribution": {"gone": 1}}
    with pytest.raises(SystemExit, match="UNAVAILABLE"):
        parse_report(report, 2)
