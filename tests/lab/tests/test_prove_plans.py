"""Customers and faults are planned from a seed."""

from collections import Counter

from stdnum import luhn

from shop_lab.prove.fault_plan import Fault, FaultKind, Targets, plan_faults
from shop_lab.world.customer_plan import plan_customers

COUNTS = dict.fromkeys(FaultKind, 20)
PRODUCTS = [f"product-{number}" for number in range(10)]


def some_faults(seed: int) -> list[Fault]:
    failpoints, in_turn = {"checkout": ["checkout.charge.before"]}, {FaultKind.LATE: ["cart-internal", "payment"]}
    targets = Targets({"checkout": 3, "payment": 1}, failpoints, ["checkout"], in_turn)
    return plan_faults(1_000, seed, COUNTS, targets, pause_seconds=3)


def test_a_seed_gives_the_same_customers_and_faults_and_another_one_others() -> None:
    assert plan_customers(200, 7, PRODUCTS) == plan_customers(200, 7, PRODUCTS) != plan_customers(200, 8, PRODUCTS)
    assert some_faults(7) == some_faults(7) != some_faults(8)


def test_each_order_has_a_valid_card_a_street_and_an_e_mail_address_of_its_own() -> None:
    intents = [intent for customer in plan_customers(500, 1, PRODUCTS) for intent in customer.intents]
    assert [intent.number for intent in intents] == list(range(500))
    assert all(luhn.is_valid(intent.card_number) for intent in intents)
    cards = {(intent.card_number, intent.card_year) for intent in intents}
    streets, recipients = {intent.street for intent in intents}, {intent.email for intent in intents}
    assert len(cards) == len(streets) == len(recipients) == 500


def test_faults_are_spread_over_the_whole_run_and_hit_each_target() -> None:
    faults = some_faults(1)
    positions = [fault.after_orders for fault in faults]
    assert positions == sorted(positions)
    assert 0 < positions[0] < 100
    assert 900 < positions[-1] < 1_000
    assert Counter(fault.kind for fault in faults) == COUNTS
    assert Counter(fault.target for fault in faults if fault.kind is FaultKind.LATE) == {
        "cart-internal": 10,
        "payment": 10,
    }
    assert {fault.target for fault in faults if fault.kind is FaultKind.KILL} == {"checkout", "payment"}
