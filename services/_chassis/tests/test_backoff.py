from chassis.values.backoff import backoff_seconds


def test_a_delay_doubles_with_each_failure_up_to_the_longest() -> None:
    assert [backoff_seconds(failures, 0.5, 60) for failures in (0, 1, 2, 3, 8, 5000)] == [0, 0.5, 1, 2, 60, 60]
