"""Customers and faults are planned from a seed."""

from shop_lab.prove.fault_plan import Fault, FaultKind, plan_faults
from shop_lab.world.customer_plan import plan_customers

PRODUCTS = [f"product-{number}" for number in range(10)]


def some_faults(seed: int) -> list[Fault]:
    targets = {kind: ["checkout", "payment"] for kind in FaultKind}
    failpoints = {"checkout": ["checkout.charge.before"], "payment": ["payment.charge.after"]}
    return plan_faults(seed, 1_000, dict.fromkeys(FaultKind, 20), targets, failpoints)


def test_a_seed_gives_the_same_customers_and_faults_and_another_one_others() -> None:
    assert plan_customers(200, 7, PRODUCTS) == plan_customers(200, 7, PRODUCTS) != plan_customers(200, 8, PRODUCTS)
    assert some_faults(7) == some_faults(7) != some_faults(8)


def test_each_order_has_a_card_a_street_and_an_e_mail_address_of_its_own() -> None:
    intents = [intent for customer in plan_customers(500, 1, PRODUCTS) for intent in customer.intents]
    cards = {(intent.card_number, intent.card_year) for intent in intents}
    streets, recipients = {intent.street for intent in intents}, {intent.email for intent in intents}
    assert len(cards) == len(streets) == len(recipients) == len(intents) == 500
