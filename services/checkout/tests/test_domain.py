from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from chassis.errors import InvalidArgument
from chassis.values.keys import HmacKeys
from chassis.values.orders import Address, Card
from checkout_service.domain import charge_key, order_id_of, ship_key
from checkout_service.peers.wire import request_from_wire
from checkout_service.requests import OrderRequest, fingerprints, scope_of, validate
from shop.checkout_pb2 import PlaceOrderRequest
from shop_kit.running_shop import order_request

KEY = HmacKeys.parse("k" * 32)
CARD = Card("4242 4242 4242 4242", 123, 2035, 11)
REQUEST = OrderRequest("ann", "EUR", Address("Main 1", "Berlin", "BE", "Germany", 10115), "ann@mail.example", CARD)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("user_id", {"user_id": ""}),
        ("user_id", {"user_id": "x" * 129}),
        ("user_currency", {"user_currency": ""}),
        ("user_currency", {"user_currency": "EURO"}),
        ("address.street_address", {"address": Address("x" * 257, "Berlin", "", "Germany", 0)}),
        ("email", {"email": "ann"}),
        ("credit_card.credit_card_number", {"card": Card("", 1, 1, 1)}),
        ("credit_card.credit_card_number", {"card": Card("4" * 65, 1, 1, 1)}),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        validate(replace(REQUEST, **changes))
    assert [broken.field for broken in error.value.violations] == [field]


def test_a_valid_request_has_the_address_that_the_relay_gets() -> None:
    assert validate(replace(REQUEST, email="ann@münchen.example")).email == "ann@xn--mnchen-3ya.example"
    assert validate(REQUEST) is REQUEST


def paths(message: Descriptor, *parents: str) -> Iterator[tuple[str, ...]]:
    for field in message.fields:
        yield from paths(field.message_type, *parents, field.name) if field.message_type else [(*parents, field.name)]


@pytest.mark.parametrize("path", [*paths(PlaceOrderRequest.DESCRIPTOR)], ids=".".join)
def test_every_field_of_a_request_but_the_security_code_is_in_its_fingerprint(path: tuple[str, ...]) -> None:
    request = order_request("ann")
    before, changed = fingerprints(request_from_wire(request), KEY), reduce(getattr, path[:-1], request)
    value = getattr(changed, path[-1])
    setattr(changed, path[-1], value + (1 if isinstance(value, int) else "1"))
    is_same = fingerprints(request_from_wire(request), KEY) == before
    assert is_same == (path == ("credit_card", "credit_card_cvv"))


def test_a_missing_part_of_a_request_changes_its_fingerprint() -> None:
    found = [fingerprints(each, KEY) for each in (REQUEST, replace(REQUEST, address=None), replace(REQUEST, card=None))]
    assert len({*map(tuple, found)}) == len(found)


@pytest.mark.parametrize("change", [{"number": "4242424242424242"}, {"number": "4242-4242-4242-4242"}, {"cvv": 999}])
def test_separators_of_a_card_number_and_the_security_code_do_not_change_a_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprints(replace(REQUEST, card=replace(CARD, **change)), KEY) == fingerprints(REQUEST, KEY)


def test_a_fingerprint_depends_on_the_hmac_key() -> None:
    assert fingerprints(REQUEST, KEY) != fingerprints(REQUEST, HmacKeys.parse("other" * 8))


def test_text_moved_between_fields_changes_the_fingerprint() -> None:
    moved = [("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"), ("abc", "", "d"), ("a1:bc", "", "d")]
    found = {tuple(fingerprints(replace(REQUEST, user_id=a, user_currency=b, email=c), KEY)) for a, b, c in moved}
    assert len(found) == len(moved)


def test_a_card_has_no_digits_in_its_repr() -> None:
    assert ("4242" in repr(REQUEST), str(CARD)) == (False, "Card()")


def test_a_scope_has_the_same_order_id_in_every_release() -> None:
    assert order_id_of("scope") == "7c4532b6-f100-871f-895d-b22074803d49"
    assert order_id_of("scope") != order_id_of("other")


def test_each_attempt_has_its_own_keys_and_the_first_shipment_that_of_its_order() -> None:
    order_id = order_id_of("scope")
    for key in (charge_key, ship_key):
        assert len({key(order_id, attempt) for attempt in range(1, 5)}) == 4
    assert ship_key(order_id, 1) == order_id


def test_orders_of_older_releases_have_one_shipment_key() -> None:
    order_id = "01998d2c-7c00-7000-8000-000000000001"
    assert {ship_key(order_id, attempt) for attempt in range(1, 5)} == {order_id}


@pytest.mark.parametrize("other", [("bob", "key", "1"), ("ann", "cart", "1"), ("ann", "key", "2")])
def test_users_kinds_and_keys_have_different_scopes(other: tuple[str, str, str]) -> None:
    assert scope_of("ann", "key", "1") != scope_of(*other)
