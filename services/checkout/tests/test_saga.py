"""The order of an order's steps; `test_saga_schedules.py` covers what may happen between them."""

from typing import Any

from checkout_service import saga
from checkout_service.outcomes import Charged, Fenced, Shipped
from checkout_service.saga import SagaResult


def drive(steps: saga.Saga, *results: Any) -> tuple[list[type[Any]], SagaResult | None]:
    """Send results to a saga; return the types of its commands, and its result if it ended."""
    commands = [type(next(steps))]
    try:
        for result in results:
            commands.append(type(steps.send(result)))  # noqa: PERF401 - a generator would hide the StopIteration
    except StopIteration as stop:
        return commands, stop.value
    return commands, None


def test_an_order_is_recorded_before_its_charge() -> None:
    assert drive(saga.place(), True) == ([saga.Insert, saga.Charge], None)


def test_an_order_whose_scope_is_taken_is_not_charged() -> None:
    assert drive(saga.place(), False) == ([saga.Insert], SagaResult.SUPERSEDED)


def test_notifications_are_sent_after_the_shipment_is_recorded() -> None:
    commands, ended = drive(saga.place(), True, Charged("transaction"), Shipped("track"), None, True, None)
    assert commands == [saga.Insert, saga.Charge, saga.Ship, saga.StartRemoval, saga.Update, saga.Send]
    assert ended is SagaResult.SETTLED


def test_a_superseded_worker_sends_no_notifications() -> None:
    commands, ended = drive(saga.place(), True, Charged("transaction"), Shipped("track"), None, False, False)
    assert commands == [saga.Insert, saga.Charge, saga.Ship, saga.StartRemoval, saga.Update, saga.Restore]
    assert ended is SagaResult.SUPERSEDED


def test_an_order_does_not_end_behind_a_fence_that_existed() -> None:
    commands, ended = drive(saga.resolve(), Fenced(existing=True), True)
    assert (commands, ended) == ([saga.Resolve, saga.Update, saga.Resolve], None)
