import itertools
import math
import random
import statistics

import pytest

from load_generator.arrivals import PEAK, SHAPES, arrivals


def take(
    rate: float, shape: str, seconds: float, *, run: float | None = None, seed: str = "1", begin: float = 0
) -> list[float]:
    generator = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    return list(itertools.takewhile(lambda at: at < seconds, arrivals(rate, shape, run, generator, begin=begin)))


@pytest.mark.parametrize("sources", [1, 5])
def test_sessions_arrive_at_the_rate_from_one_source_and_from_several(sources: int) -> None:
    arrived = [at for number in range(sources) for at in take(50 / sources, "steady", 200, seed=str(number))]
    assert len(arrived) == pytest.approx(10_000, abs=4 * math.sqrt(10_000))


def test_times_between_arrivals_are_exponential() -> None:
    """In an exponential distribution, the standard deviation equals the mean, and 1/e of all values exceed the mean."""
    gaps = [after - before for before, after in itertools.pairwise(take(50, "steady", 200))]
    mean = statistics.fmean(gaps)
    exceeding = sum(gap > mean for gap in gaps) / len(gaps)
    assert [statistics.stdev(gaps) / mean, exceeding] == [pytest.approx(1, abs=0.05), pytest.approx(0.368, abs=0.02)]


def test_arrivals_in_disjoint_seconds_are_a_poisson_count() -> None:
    """In a Poisson process, the variance of the number of arrivals per second equals the mean."""
    counts = [0] * 500
    for at in take(20, "steady", 500):
        counts[int(at)] += 1
    assert statistics.variance(counts) / statistics.fmean(counts) == pytest.approx(1, abs=0.25)


def test_a_seed_repeats_the_arrivals() -> None:
    first, second, other = (take(10, "daily", 60, run=60, seed=seed) for seed in ("seed", "seed", "another"))
    assert first == second != other


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_follow_the_shape(shape: str) -> None:
    counts = [0] * 20
    for at in take(200, shape, 100, run=100):
        counts[int(at / 5)] += 1
    expected = [200 * 5 * SHAPES[shape]((part + 0.5) / 20) for part in range(20)]
    assert counts == [pytest.approx(count, abs=4 * math.sqrt(count) + 10) for count in expected]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_factor_exceeds_the_peak(shape: str) -> None:
    assert max(SHAPES[shape](part / 1000) for part in range(1000)) == (PEAK if shape == "spike" else 1)


def test_a_run_without_an_end_repeats_the_shape() -> None:
    arrived = take(20, "spike", 1200)
    assert sum(840 <= at < 900 for at in arrived) == pytest.approx(6000, abs=400)


def test_a_source_that_begins_late_joins_the_shape_where_it_is() -> None:
    arrived = take(100, "spike", 50, run=100, begin=40)
    assert min(arrived) > 40
    assert len(arrived) == pytest.approx(5000, abs=300)
