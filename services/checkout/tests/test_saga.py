"""The order of an order's steps; `test_saga_schedules.py` covers what may happen between them."""

from typing import Any

from checkout_service import saga
from checkout_service.commands import (
    Charge,
    Charged,
    Fenced,
    Forgotten,
    Insert,
    KeyReused,
    Resolve,
    ResolveShipment,
    Restore,
    Send,
    Ship,
    Shipped,
    StartRemoval,
    Update,
)
from checkout_service.domain import State
from checkout_service.saga import SagaResult

CHARGED, SHIPPED = Charged("transaction"), Shipped("track")


def drive(steps: saga.Saga, *results: Any) -> tuple[list[type[Any]], SagaResult | None]:
    """Send results to a saga; return the types of its commands, and its result if it ended."""
    yielded = [type(next(steps))]
    try:
        for result in results:
            yielded.append(type(steps.send(result)))  # noqa: PERF401 - a generator would hide the StopIteration
    except StopIteration as stop:
        return yielded, stop.value
    return yielded, None


def test_an_order_is_recorded_before_its_charge() -> None:
    assert drive(saga.place(), True) == ([Insert, Charge], None)


def test_an_order_whose_scope_is_taken_is_not_charged() -> None:
    assert drive(saga.place(), False) == ([Insert], SagaResult.SUPERSEDED)


def test_an_order_without_faults_takes_six_steps() -> None:
    assert drive(saga.place(), True, CHARGED, SHIPPED, None, True, None) == (
        [Insert, Charge, Ship, StartRemoval, Update, Send],
        SagaResult.SETTLED,
    )


def test_a_superseded_worker_sends_no_confirmation() -> None:
    assert drive(saga.place(), True, CHARGED, SHIPPED, None, False, False) == (
        [Insert, Charge, Ship, StartRemoval, Update, Restore],
        SagaResult.SUPERSEDED,
    )


def test_a_lost_order_is_restored_before_its_shipment_is_recorded() -> None:
    yielded, _ = drive(saga.place(), True, CHARGED, SHIPPED, None, False, True, True)
    assert yielded == [Insert, Charge, Ship, StartRemoval, Update, Restore, Update, Send]


def test_an_order_does_not_end_behind_a_fence_that_existed() -> None:
    assert drive(saga.resolve(), Fenced(existing=True), True) == ([Resolve, Update, Resolve], None)


def commands_of(steps: saga.Saga, *results: Any) -> list[Any]:
    return [next(steps), *(steps.send(result) for result in results)]


def test_an_old_charge_whose_shipment_is_forgotten_is_not_shipped_and_kept() -> None:
    charged = Charged("transaction", charged_at=5.0)
    *_, ship, update = commands_of(saga.place(), True, charged, Forgotten())
    assert ship == Ship(charged_at=5.0)
    assert (update.transition.after, update.transition.transaction_id) == (State.NEEDS_REVIEW, "transaction")


def test_an_old_charge_of_other_content_whose_shipment_is_forgotten_is_kept() -> None:
    displaced = KeyReused("transaction", charged_at=5.0)
    *_, resolve, update = commands_of(saga.place(), True, KeyReused(), displaced, Forgotten())
    assert resolve == ResolveShipment(charged_at=5.0)
    assert (update.transition.after, update.transition.transaction_id) == (State.NEEDS_REVIEW, "transaction")
