"""Seeds make plans."""

from stdnum import luhn

from shop_cli.prove.plan import Customer, Fault, Harm, Harmed, Intent, Wish, card_number, customers, faults

PRODUCTS = [f"product-{number}" for number in range(10)]


def intents_of(made: list[Customer]) -> list[Intent]:
    return [intent for customer in made for intent in customer.intents]


def some_faults(seed: int) -> list[Fault]:
    harmed = [Harmed("checkout", 3), Harmed("payment", 1)]
    return faults(1_000, seed, kills=40, pauses=7, restarts=3, harmed=harmed, pause_seconds=3)


def test_the_same_seed_gives_the_same_customers_and_faults() -> None:
    assert customers(200, 7, PRODUCTS) == customers(200, 7, PRODUCTS)
    assert some_faults(7) == some_faults(7)


def test_another_seed_gives_others() -> None:
    assert customers(200, 7, PRODUCTS) != customers(200, 8, PRODUCTS)
    assert some_faults(7) != some_faults(8)


def test_there_are_as_many_orders_as_asked_for_each_with_a_card_street_and_address_of_its_own() -> None:
    intents = intents_of(customers(500, 1, PRODUCTS))
    assert [intent.number for intent in intents] == list(range(500))
    for identity in ("card_number", "street", "email"):
        assert len({getattr(intent, identity) for intent in intents}) == 500


def test_cards_have_valid_check_digits() -> None:
    assert all(luhn.is_valid(card_number(number)) and len(card_number(number)) == 16 for number in range(1_000))


def test_customers_differ_in_what_they_do() -> None:
    intents = intents_of(customers(500, 1, PRODUCTS))
    assert {intent.wish for intent in intents} == set(Wish)
    assert {intent.key is None for intent in intents} == {True, False}
    assert {intent.late is None for intent in intents} == {True, False}
    assert {intent.max_tries is None for intent in intents} == {True, False}
    assert {len(customer.intents) for customer in customers(500, 1, PRODUCTS)} == {1, 2}


def test_nothing_comes_late_into_a_cart_whose_state_is_the_key() -> None:
    assert not [intent for intent in intents_of(customers(500, 1, PRODUCTS)) if intent.late and intent.key is None]


def test_faults_are_spread_over_the_run_in_order() -> None:
    afters = [fault.after for fault in some_faults(1)]
    assert afters == sorted(afters)
    assert 0 < afters[0] < 100
    assert 900 < afters[-1] < 1_000


def test_there_is_as_much_of_each_harm_as_asked_for() -> None:
    harms = [fault.harm for fault in some_faults(1)]
    assert [harms.count(harm) for harm in (Harm.KILL, Harm.PAUSE, Harm.RESTART_DATABASE)] == [40, 7, 3]


def test_pauses_are_at_least_as_long_as_asked_for() -> None:
    assert all(3 <= fault.seconds <= 4.5 for fault in some_faults(1) if fault.harm is Harm.PAUSE)
