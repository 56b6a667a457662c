from dataclasses import asdict

import pytest

from chassis.values.addresses import Address, check_address
from chassis.values.cards import has_card_number
from shop_kit.failing import rejecting

VISA, LONGEST = "4111 1111 1111 1111", "6304 0000 0000 0000 000"


ADDRESS = Address("1 Harbour Street", "Hamburg", "", "DE", 20095)


WITH_CARDS = [VISA, "4111111111111111", "4222222222222", LONGEST, "Visa4111-1111-1111-1111, thanks"]
WITH_CARDS += ["12 4111\u20111111\u00a01111\n1111", "4111 1111 1111 1111 20095"]
WITHOUT = ["", "1 Harbour Street", "4111 1111 1111 1112", "+49 40 1234567", "1" * 20, "1 " * 99]
WITHOUT += ["41111111-1111-1111-8abc-abcdefabcdef@example.com"]


@pytest.mark.parametrize(
    ("text", "has_one"), [*((text, True) for text in WITH_CARDS), *((text, False) for text in WITHOUT)]
)
def test_a_card_number_is_found_and_other_numbers_are_no_cards(text: str, has_one: bool) -> None:
    assert has_card_number(text) is has_one


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("name", ["street_address", "city", "state", "country"])
def test_an_address_with_a_card_number_is_refused_and_not_quoted(name: str, is_complete: bool) -> None:
    with rejecting(f"address.{name}") as refused:
        check_address(Address(**{**asdict(ADDRESS), name: VISA}), "address", is_complete=is_complete)
    assert "4111" not in str(refused.value)
