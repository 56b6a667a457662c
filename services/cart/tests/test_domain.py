from typing import Any

import pytest

from cart_service.domain import Addition, new_etag
from shop_kit.failing import rejecting


@pytest.mark.parametrize("quantity", [1, 10_000])
def test_one_to_ten_thousand_may_be_added_at_once(quantity: int) -> None:
    assert Addition("ada", "pan", quantity).quantity == quantity


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({"quantity": quantity}, "item.quantity") for quantity in (-1, 0, 10_001)),
        *(({"user_id": user_id}, "user_id") for user_id in ("", "x" * 129)),
        *(({"product_id": product_id}, "item.product_id") for product_id in ("", "x" * 65)),
        *(({"key": key}, "idempotency-key") for key in ("", "x" * 256, "with space", "ключ")),
    ],
)
def test_an_invalid_field_is_rejected_by_its_name(change: dict[str, Any], field: str) -> None:
    fields: dict[str, Any] = {"user_id": "ada", "product_id": "pan", "quantity": 1} | change
    with rejecting(field):
        Addition(**fields)


def test_etags_are_unique() -> None:
    assert len({new_etag() for _ in range(1000)}) == 1000
