"""The order of an order's steps; `test_saga_schedules.py` covers what may happen between them."""

from typing import Any

import pytest

from checkout_service import saga
from checkout_service.commands import (
    Charge,
    Charged,
    Fenced,
    Forgotten,
    InDoubt,
    Insert,
    KeyReused,
    Refused,
    Resolve,
    ResolveShipment,
    Restore,
    Send,
    Ship,
    Shipped,
    StartRemoval,
    Update,
    Voided,
    Wait,
)
from checkout_service.domain import SETTLED_REFUNDED, Refusal, State
from checkout_service.saga import SagaResult

FAULTLESS = [True, Charged("transaction"), Shipped("track"), None]
TO_SHIPMENT = [Insert, Charge, Ship, StartRemoval, Update]


def drive(steps: saga.Saga, *results: Any) -> tuple[list[type[Any]], SagaResult | None]:
    """Send results to a saga; return the types of its commands, and its result if it ended."""
    yielded = [type(next(steps))]
    try:
        for result in results:
            yielded.append(type(steps.send(result)))  # noqa: PERF401 - a generator would hide the StopIteration
    except StopIteration as stop:
        return yielded, stop.value
    return yielded, None


@pytest.mark.parametrize(
    ("results", "commands", "ended"),
    [
        ([False], [Insert], SagaResult.SUPERSEDED),
        ([*FAULTLESS, True, None], [*TO_SHIPMENT, Send], SagaResult.ENDED),
        ([*FAULTLESS, False, False], [*TO_SHIPMENT, Restore], SagaResult.SUPERSEDED),
        ([*FAULTLESS, False, True, True], [*TO_SHIPMENT, Restore, Update, Send], None),
    ],
    ids=["its scope is taken", "no faults", "another worker took it over", "the journal has lost it"],
)
def test_an_order_is_recorded_charged_shipped_recorded_as_shipped_and_then_confirmed(
    results: list[Any], commands: list[type[Any]], ended: SagaResult | None
) -> None:
    assert drive(saga.place(), *results) == (commands, ended)


def test_a_settlement_does_not_end_while_the_shipment_of_an_attempt_is_in_doubt() -> None:
    steps = saga.settle(Refusal("", SETTLED_REFUNDED, ""), "")
    commands, ended = drive(steps, Voided(), InDoubt("down"), False, Fenced(existing=False))
    assert (commands, ended) == ([Resolve, ResolveShipment, Wait, ResolveShipment], SagaResult.UNFINISHED)


OLD, OTHER_CONTENT = Charged("transaction", charged_at=5.0), KeyReused("transaction", charged_at=5.0)


@pytest.mark.parametrize(
    ("results", "shipment"),
    [
        ([True, OLD, Forgotten()], Ship(charged_at=5.0)),
        ([True, KeyReused(), OTHER_CONTENT, Forgotten()], ResolveShipment(charged_at=5.0)),
    ],
    ids=["own content", "other content"],
)
def test_an_old_charge_whose_shipment_is_forgotten_is_not_shipped_and_kept(results: list[Any], shipment: Any) -> None:
    steps = saga.place()
    commands: list[Any] = [next(steps), *(steps.send(result) for result in results)]
    *_, to_shipping, update = commands
    assert to_shipping == shipment
    assert (update.transition.after, update.transition.transaction_id) == (State.NEEDS_REVIEW, "transaction")


@pytest.mark.parametrize(("found", "after"), [(Voided(), State.CHARGING), (OLD, State.NEEDS_REFUND)])
def test_a_refused_void_may_repeat_one_that_succeeded(found: Any, after: State) -> None:
    steps = saga.void_charge(saga.CHARGE_VOIDED)
    commands: list[Any] = [next(steps), steps.send(Refused(saga.CHARGE_VOIDED)), steps.send(found)]
    assert (type(commands[1]), commands[2].transition.after) == (Resolve, after)
