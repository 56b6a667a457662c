from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from chassis.errors import DomainError, IdempotencyKeyReused
from chassis.values.keys import HmacKeys
from chassis.values.orders import Card
from payment_service.cards import Brand
from payment_service.domain import (
    CardDeclined,
    ChargeFenced,
    ChargeNotFound,
    ChargeRequest,
    ChargeVoided,
    Entry,
    Ledger,
    PaymentProcessor,
    State,
)
from shop_kit.failing import rejecting

AMEX = "378282246310005"
OLD_KEY = HmacKeys.parse("o" * 32)
BOTH_KEYS = HmacKeys.parse(f"{'n' * 32},{'o' * 32}")
NEW_KEY = HmacKeys.parse("n" * 32)


def make_request(**changed: Any) -> ChargeRequest:
    """Make a request to charge 12.34 EUR to a valid card, with the given fields changed."""
    card: dict[str, Any] = {"number": "4242 4242 4242 4242", "cvv": 123, "year": 2030, "month": 11}
    card |= {name: changed.pop(name) for name in card if name in changed}
    return replace(ChargeRequest("EUR", 12, 340_000_000, Card(**card)), **changed)


@pytest.fixture
def declines() -> list[str]:
    """The decline reasons that have been counted, oldest first."""
    return []


@pytest.fixture
def processor(sqlite_ledger: Ledger, declines: list[str]) -> PaymentProcessor:
    return PaymentProcessor(
        sqlite_ledger, OLD_KEY, frozenset({Brand.VISA}), lambda: date(2026, 11, 21), declines.append
    )


async def test_a_charge_is_recorded_with_its_amount_and_the_brand_of_its_card(processor: PaymentProcessor) -> None:
    entry = await processor.charge("key", make_request())
    assert entry == await processor.ledger.find("key")
    assert entry.payment is not None
    assert (entry.payment.brand, str(entry.payment.amount)) == ("visa", "12.34 EUR")


def test_a_key_has_the_same_transaction_id_in_every_release() -> None:
    assert Entry("key", State.CHARGED).transaction_id == "5cfa7e53-ea52-506a-84f5-3cf26caec591"


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        # Different separators or security codes do not make a different request.
        ({"number": "4242424242424242"}, {}),
        ({"cvv": 321}, {}),
        # By now, the rules would decline the card.
        ({}, {"today": lambda: date(2031, 1, 1)}),
        ({}, {"accepted_brands": {Brand.JCB}}),
    ],
)
async def test_a_charge_is_repeatable(processor: PaymentProcessor, change: dict[str, object], rules: Any) -> None:
    charged = await processor.charge("key", make_request())
    assert await replace(processor, **rules).charge("key", make_request(**change)) == charged


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
        {"purchase_id": "another"},
    ],
)
async def test_a_key_reused_for_a_different_request_is_refused(
    processor: PaymentProcessor, other: dict[str, object]
) -> None:
    await processor.charge("key", make_request(purchase_id="one"))
    with pytest.raises(IdempotencyKeyReused):
        await processor.charge("key", make_request(**{"purchase_id": "one"} | other))


async def test_a_charge_is_repeatable_with_its_card_until_its_hmac_key_is_removed(processor: PaymentProcessor) -> None:
    charged = await processor.charge("key", make_request())
    rotated = replace(processor, hmac_keys=BOTH_KEYS)
    assert await rotated.charge("key", make_request()) == charged
    with pytest.raises(IdempotencyKeyReused):
        await rotated.charge("key", make_request(number="4000056655665556"))
    with pytest.raises(IdempotencyKeyReused):
        await replace(processor, hmac_keys=NEW_KEY).charge("key", make_request())
    later = await rotated.charge("later", make_request())
    ids = [entry.payment.hmac_key_id for entry in (charged, later) if entry.payment]
    assert ids == [OLD_KEY.current_id, NEW_KEY.current_id]
    assert await processor.resolve_or_fence("key") == charged


@pytest.mark.parametrize(
    ("declined", "reason"), [({"number": AMEX}, "BRAND_NOT_ACCEPTED"), ({"year": 2026, "month": 10}, "CARD_EXPIRED")]
)
async def test_a_decline_has_its_reason_and_is_final_even_if_the_card_would_be_accepted_later(
    processor: PaymentProcessor, declined: dict[str, object], reason: str
) -> None:
    later = replace(processor, accepted_brands=frozenset(Brand), today=lambda: date(2026, 10, 1))
    for repeated in (processor, later):
        with pytest.raises(CardDeclined) as refused:
            await repeated.charge("key", make_request(**declined))
        assert refused.value.reason == reason


async def test_a_decline_is_counted_once_by_its_reason(processor: PaymentProcessor, declines: list[str]) -> None:
    for key, request in (
        ("one", make_request(number=AMEX)),
        ("one", make_request(number=AMEX)),
        ("two", make_request(number=AMEX)),
        ("three", make_request(year=2025)),
        ("three", make_request(units=1)),
        ("four", make_request(number="4242")),
    ):
        with pytest.raises(DomainError):
            await processor.charge(key, request)
    await processor.charge("five", make_request())
    assert declines == ["BRAND_NOT_ACCEPTED", "BRAND_NOT_ACCEPTED", "CARD_EXPIRED"]


@pytest.mark.parametrize(
    ("invalid", "field"),
    [
        ({"number": "4242"}, "credit_card.credit_card_number"),
        ({"units": 0, "nanos": 0}, "amount"),
        ({"units": -12, "nanos": 0}, "amount"),
        ({"units": 12, "nanos": -1}, "amount.nanos"),
        ({"currency_code": "eur"}, "amount.currency_code"),
    ],
)
async def test_a_malformed_request_is_refused_with_its_field_and_does_not_use_up_its_key(
    processor: PaymentProcessor, invalid: dict[str, object], field: str
) -> None:
    with rejecting(field):
        await processor.charge("key", make_request(**invalid))
    smallest = make_request(units=0, nanos=1)
    assert (await processor.charge("key", smallest)).state is State.CHARGED


@pytest.mark.parametrize("late", [{}, {"number": AMEX}, {"number": "4242"}])
async def test_every_charge_after_the_fence_is_refused(processor: PaymentProcessor, late: dict[str, object]) -> None:
    assert (await processor.resolve_or_fence("key")).state is State.FENCED
    with pytest.raises(ChargeFenced):
        await processor.charge("key", make_request(**late))


async def test_only_a_charge_can_be_voided_and_its_repetition_is_refused(processor: PaymentProcessor) -> None:
    await processor.charge("key", make_request())
    await processor.void("key")
    with pytest.raises(ChargeVoided):
        await processor.charge("key", make_request())
    await processor.resolve_or_fence("fenced")
    with pytest.raises(CardDeclined):
        await processor.charge("declined", make_request(number=AMEX))
    for key in ("unknown", "fenced", "declined"):
        with pytest.raises(ChargeNotFound):
            await processor.void(key)
