"""Customers and faults are planned from a seed."""

from collections import Counter

import pytest
from stdnum import luhn

from shop_lab.prove.fault_plan import NETWORK_MODES, Fault, FaultKind, Targets, plan_faults
from shop_lab.world.customer_plan import Customer, Intent, OrderKind, card_number, plan_customers

COUNTS = dict.fromkeys(FaultKind, 20)
IN_TURN = [kind for kind in FaultKind if kind not in {FaultKind.KILL, FaultKind.KILL_AT_FAILPOINT, FaultKind.PAUSE}]
TARGETS = ("email", "cart-internal")
PRODUCTS = [f"product-{number}" for number in range(10)]


def intents_of(planned: list[Customer]) -> list[Intent]:
    return [intent for customer in planned for intent in customer.intents]


def some_faults(seed: int) -> list[Fault]:
    weights, failpoints = {"checkout": 3, "payment": 1}, {"checkout": ["checkout.charge.before"]}
    targets = Targets(weights, failpoints, ["checkout"], in_turn=dict.fromkeys(IN_TURN, TARGETS))
    return plan_faults(1_000, seed, COUNTS, targets, pause_seconds=3)


def test_the_same_seed_gives_the_same_customers_and_faults() -> None:
    assert plan_customers(200, 7, PRODUCTS) == plan_customers(200, 7, PRODUCTS)
    assert some_faults(7) == some_faults(7)


def test_another_seed_gives_other_customers_and_faults() -> None:
    assert plan_customers(200, 7, PRODUCTS) != plan_customers(200, 8, PRODUCTS)
    assert some_faults(7) != some_faults(8)


def test_the_requested_number_of_orders_is_planned_each_with_its_own_card_street_and_e_mail_address() -> None:
    intents = intents_of(plan_customers(500, 1, PRODUCTS))
    assert [intent.number for intent in intents] == list(range(500))
    cards = {(intent.card_number, intent.card_year) for intent in intents}
    streets, recipients = {intent.street for intent in intents}, {intent.email for intent in intents}
    assert len(cards) == len(streets) == len(recipients) == 500


def test_devices_order_the_same_cart_with_the_same_or_another_card_number() -> None:
    customers = [customer for customer in plan_customers(500, 1, PRODUCTS) if len(customer.devices) > 1]
    assert all(intent.contested for customer in customers for intent in customer.intents)
    assert {len({intent.card_number for intent in customer.intents}) for customer in customers} == {1, 2, 3}
    assert {len(intent.lines) for customer in customers for intent in customer.devices[1]} == {0, 1}


def test_cards_have_valid_check_digits() -> None:
    assert all(luhn.is_valid(card_number(number)) and len(card_number(number)) == 16 for number in range(1_000))


def test_customers_vary_in_every_choice() -> None:
    intents = intents_of(plan_customers(500, 1, PRODUCTS))
    assert {intent.kind for intent in intents} == set(OrderKind)
    assert {intent.key is None for intent in intents} == {True, False}
    assert {intent.late_line is None for intent in intents} == {True, False}
    assert {intent.max_tries is None for intent in intents} == {True, False}
    assert {intent.contested for intent in intents} == {True, False}
    assert {intent.may_order_again for intent in intents} == {True, False}
    assert {intent.returns_after_seconds > 0 for intent in intents} == {True, False}
    assert {len(customer.devices) for customer in plan_customers(500, 1, PRODUCTS)} == {1, 2, 3}
    assert {len(customer.devices[0]) for customer in plan_customers(500, 1, PRODUCTS)} == {1, 2}


def test_faults_are_spread_over_the_whole_run_in_order() -> None:
    positions = [fault.after_orders for fault in some_faults(1)]
    assert positions == sorted(positions)
    assert 0 < positions[0] < 100
    assert 900 < positions[-1] < 1_000


def test_the_requested_number_of_faults_of_each_kind_is_planned() -> None:
    assert Counter(fault.kind for fault in some_faults(1)) == COUNTS


def test_patient_customers_have_one_order_change_no_cart_and_do_not_leave() -> None:
    customers = plan_customers(500, 1, PRODUCTS, patient=True)
    assert all(len(customer.intents) == 1 for customer in customers)
    assert not [intent for intent in intents_of(customers) if intent.contested or intent.returns_after_seconds]


@pytest.mark.parametrize("kind", IN_TURN)
def test_two_faults_of_a_kind_hit_both_of_its_targets(kind: FaultKind) -> None:
    targets = [fault.target for fault in some_faults(3) if fault.kind is kind]
    assert all({*pair} == {*TARGETS} for pair in zip(targets[::2], targets[1::2], strict=True))


def test_kills_hit_every_process_and_pauses_mostly_those_that_own_orders() -> None:
    targets = Counter((fault.kind, fault.target) for fault in some_faults(1))
    assert {target for kind, target in targets if kind is FaultKind.KILL} == {"checkout", "payment"}
    assert targets[FaultKind.PAUSE, "checkout"] > 3 * targets[FaultKind.PAUSE, "payment"]


def test_failpoints_are_those_of_the_process_and_the_network_has_every_fault() -> None:
    details = {kind: {fault.detail for fault in some_faults(1) if fault.kind is kind} for kind in FaultKind}
    assert details[FaultKind.KILL_AT_FAILPOINT] == {"checkout.charge.before"}
    assert details[FaultKind.NETWORK] == set(NETWORK_MODES)


@pytest.mark.parametrize("kind", [FaultKind.PAUSE, FaultKind.STALL, FaultKind.LATE])
def test_what_shall_outlast_a_lease_lasts_1_to_1_5_times_as_long_as_requested(kind: FaultKind) -> None:
    assert all(3 <= fault.seconds <= 4.5 for fault in some_faults(1) if fault.kind is kind)


@pytest.mark.parametrize(
    ("kind", "port", "processes"),
    [
        (FaultKind.LATE, "cart-internal", ["cart"]),
        (FaultKind.REFUSED_RELEASES, "payment-internal", ["payment", "shipping"]),
    ],
)
def test_a_fault_of_a_port_concerns_its_process(kind: FaultKind, port: str, processes: list[str]) -> None:
    assert Fault(0, kind, port, 0).processes == processes
