from typing import Any

import pytest

from cart_service.domain import Addition, check_user_id, new_etag
from chassis.errors import InvalidArgument


def rejected_field(**changes: object) -> str:
    fields: dict[str, Any] = {"user_id": "ada", "product_id": "pan", "quantity": 1} | changes
    with pytest.raises(InvalidArgument) as refused:
        Addition(**fields)
    return refused.value.violations[0].field


@pytest.mark.parametrize("quantity", [1, 10_000])
def test_one_to_ten_thousand_may_be_added_at_once(quantity: int) -> None:
    assert Addition("ada", "pan", quantity).quantity == quantity


@pytest.mark.parametrize("quantity", [-1, 0, 10_001])
def test_any_other_quantity_is_rejected(quantity: int) -> None:
    assert rejected_field(quantity=quantity) == "item.quantity"


@pytest.mark.parametrize("user_id", ["", "x" * 129])
def test_a_user_id_has_one_to_128_characters(user_id: str) -> None:
    assert rejected_field(user_id=user_id) == "user_id"


@pytest.mark.parametrize("product_id", ["", "x" * 65])
def test_a_product_id_has_one_to_64_characters(product_id: str) -> None:
    assert rejected_field(product_id=product_id) == "item.product_id"


@pytest.mark.parametrize("key", ["", "x" * 256, "with space", "ключ"])
def test_a_key_has_one_to_255_visible_ascii_characters(key: str) -> None:
    assert rejected_field(key=key) == "idempotency-key"


def test_lengths_count_characters_not_bytes() -> None:
    assert check_user_id("ж" * 128) == "ж" * 128


def test_an_error_does_not_contain_the_value() -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_user_id("secret" * 30)
    assert "secret" not in refused.value.message


def test_etags_are_unique() -> None:
    assert len({new_etag() for _ in range(1000)}) == 1000
