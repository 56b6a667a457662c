from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from chassis.errors import IdempotencyKeyReused, InvalidArgument
from payment_service.cards import Brand
from payment_service.domain import (
    CardDeclined,
    ChargeFenced,
    ChargeNotFound,
    ChargeOrder,
    ChargeVoided,
    Ledger,
    State,
    Till,
)

Order = Callable[..., ChargeOrder]

AMEX = "378282246310005"


@pytest.fixture
def till(sqlite_ledger: Ledger) -> Till:
    return Till(sqlite_ledger, b"k" * 32, frozenset({Brand.VISA}), lambda: date(2026, 11, 21))


async def test_a_charge_is_recorded_with_what_may_be_kept_of_its_card(till: Till, order: Order) -> None:
    entry = await till.charge("key", order())
    assert entry == await till.ledger.find("key")
    assert entry.payment is not None
    assert (entry.payment.brand, entry.payment.last_four, str(entry.payment.amount)) == ("visa", "4242", "12.34 EUR")


async def test_a_key_charges_once(till: Till, order: Order) -> None:
    assert await till.charge("key", order()) == await till.charge("key", order())


async def test_another_key_is_another_charge(till: Till, order: Order) -> None:
    first, second = await till.charge("one", order()), await till.charge("two", order())
    assert first.transaction_id != second.transaction_id


@pytest.mark.parametrize("same", [{"number": "4242424242424242"}, {"cvv": 321}])
async def test_what_does_not_change_the_card_is_the_same_request(
    till: Till, order: Order, same: dict[str, object]
) -> None:
    assert await till.charge("key", order()) == await till.charge("key", order(**same))


@pytest.mark.parametrize(
    "other",
    [
        {"units": 13},
        {"nanos": 350_000_000},
        {"currency_code": "USD"},
        {"number": "4000056655665556"},
        {"year": 2031},
        {"month": 12},
        {"number": AMEX},
        {"units": -1},
        {"number": "no number"},
    ],
)
async def test_a_key_that_comes_with_another_request_is_refused(
    till: Till, order: Order, other: dict[str, object]
) -> None:
    await till.charge("key", order())
    with pytest.raises(IdempotencyKeyReused):
        await till.charge("key", order(**other))


async def test_a_repeat_is_answered_though_the_card_has_expired_since(till: Till, order: Order) -> None:
    charged = await till.charge("key", order())
    later = replace(till, today=lambda: date(2031, 1, 1))
    assert await later.charge("key", order()) == charged


async def test_a_repeat_is_answered_though_the_brand_is_no_longer_taken(till: Till, order: Order) -> None:
    charged = await till.charge("key", order())
    assert await replace(till, accepted_brands={Brand.JCB}).charge("key", order()) == charged


@pytest.mark.parametrize(
    ("declined", "reason"),
    [({"number": AMEX}, "BRAND_NOT_ACCEPTED"), ({"year": 2026, "month": 10}, "CARD_EXPIRED")],
)
async def test_a_card_the_shop_does_not_charge_is_declined_with_its_reason(
    till: Till, order: Order, declined: dict[str, object], reason: str
) -> None:
    with pytest.raises(CardDeclined) as refused:
        await till.charge("key", order(**declined))
    assert refused.value.reason == reason


async def test_a_decline_stands_though_the_brand_is_taken_later(till: Till, order: Order) -> None:
    with pytest.raises(CardDeclined) as first:
        await till.charge("key", order(number=AMEX))
    with pytest.raises(CardDeclined) as second:
        await replace(till, accepted_brands=frozenset(Brand)).charge("key", order(number=AMEX))
    assert (second.value.reason, second.value.message) == (first.value.reason, first.value.message)


async def test_a_malformed_request_leaves_its_key_free(till: Till, order: Order) -> None:
    with pytest.raises(InvalidArgument):
        await till.charge("key", order(number="4242"))
    assert (await till.charge("key", order())).state is State.CHARGED


@pytest.mark.parametrize(
    ("amount", "field"),
    [
        ({"units": 0, "nanos": 0}, "amount"),
        ({"units": -12, "nanos": 0}, "amount"),
        ({"units": 12, "nanos": -1}, "amount.nanos"),
        ({"nanos": 1_000_000_000}, "amount.nanos"),
        ({"currency_code": "eur"}, "amount.currency_code"),
        ({"currency_code": ""}, "amount.currency_code"),
    ],
)
async def test_an_amount_that_is_none_is_refused_by_its_field(
    till: Till, order: Order, amount: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await till.charge("key", order(**amount))
    assert refused.value.violations[0].field == field


async def test_the_smallest_amount_is_charged(till: Till, order: Order) -> None:
    assert (await till.charge("key", order(units=0, nanos=1))).state is State.CHARGED


@pytest.mark.parametrize("late", [{}, {"number": AMEX}, {"number": "4242"}])
async def test_whatever_comes_after_the_fence_is_refused(till: Till, order: Order, late: dict[str, object]) -> None:
    assert (await till.resolve_or_fence("key")).state is State.FENCED
    with pytest.raises(ChargeFenced):
        await till.charge("key", order(**late))


async def test_a_fence_that_comes_after_the_charge_tells_of_it(till: Till, order: Order) -> None:
    charged = await till.charge("key", order())
    assert await till.resolve_or_fence("key") == charged
    assert await till.charge("key", order()) == charged


async def test_a_fence_that_comes_after_a_decline_tells_of_it(till: Till, order: Order) -> None:
    with pytest.raises(CardDeclined):
        await till.charge("key", order(number=AMEX))
    entry = await till.resolve_or_fence("key")
    assert (entry.state, entry.reason) == (State.DECLINED, "BRAND_NOT_ACCEPTED")


async def test_a_charge_is_voided_once(till: Till, order: Order) -> None:
    charged = await till.charge("key", order())
    voided = await till.void("key")
    assert voided == await till.void("key") == replace(charged, state=State.VOIDED)
    assert (await till.resolve_or_fence("key")).state is State.VOIDED


async def test_a_voided_key_charges_nothing_again(till: Till, order: Order) -> None:
    await till.charge("key", order())
    await till.void("key")
    with pytest.raises(ChargeVoided):
        await till.charge("key", order())


async def test_there_is_nothing_to_void_under_an_unknown_key(till: Till) -> None:
    with pytest.raises(ChargeNotFound):
        await till.void("key")


async def test_there_is_nothing_to_void_under_a_fenced_key(till: Till) -> None:
    await till.resolve_or_fence("key")
    with pytest.raises(ChargeNotFound):
        await till.void("key")


async def test_there_is_nothing_to_void_under_a_declined_key(till: Till, order: Order) -> None:
    with pytest.raises(CardDeclined):
        await till.charge("key", order(number=AMEX))
    with pytest.raises(ChargeNotFound):
        await till.void("key")


async def test_no_repr_shows_the_key_of_the_hmac(till: Till) -> None:
    assert "kkkk" not in repr(till)
