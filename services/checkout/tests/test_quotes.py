"""What an order would cost, and orders of another total than their customers were shown."""

from typing import Any

import pytest

from chassis.errors import FailedPrecondition
from chassis.rpc.status import from_rpc_error
from shop.address_pb2 import Address
from shop_kit.checkouts import Checkout, Start
from shop_kit.failing import error_of
from shop_kit.fake_peers import FakePeers

TOTAL = "45.95 EUR"
"""Of Ann's order."""


@pytest.mark.parametrize("currency", ["EUR", "USD", "JPY"])
async def test_a_quote_has_the_costs_of_the_order(checkout: Checkout, currency: str) -> None:
    quoted = await checkout.quote(user_currency=currency)
    placed = (await checkout.place(user_currency=currency)).response.order
    assert (list(quoted.items), quoted.shipping_cost) == (list(placed.items), placed.shipping_cost)


async def test_a_quote_has_no_effect(checkout: Checkout) -> None:
    assert (await checkout.quote()).order_id == ""
    assert await checkout.listed() == []
    assert checkout.peers.cart.lines["ann"] == {"mug": 2}
    assert checkout.peers.payment.calls["Charge"] == 0


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"email": "ann"}, "email: must be one e-mail address"),
        ({"user_id": "empty"}, "the cart is empty"),
        ({"address": Address()}, "address.street_address: must not be empty"),
    ],
)
async def test_what_cannot_be_ordered_has_no_quote(checkout: Checkout, changed: dict[str, Any], problem: str) -> None:
    refused = from_rpc_error(await error_of(checkout.quote(**changed)))
    assert refused.message == problem


@pytest.mark.parametrize("key", [None, "key-1"])
@pytest.mark.parametrize("shown", ["45.94 EUR", "45.95 USD"])
async def test_an_order_of_another_total_is_not_placed(checkout: Checkout, shown: str, key: str | None) -> None:
    error = await checkout.refused(key, expected_total=shown)
    assert (type(error), error.reason, error.metadata["total"]) == (FailedPrecondition, "TOTAL_CHANGED", TOTAL)
    assert await checkout.listed() == []
    assert checkout.peers.payment.calls["Charge"] == 0


@pytest.mark.parametrize("text", ["", "45.95", "EUR 45.95", "45,95 EUR", "nan EUR"])
async def test_an_expected_total_that_is_no_amount_is_refused(checkout: Checkout, text: str) -> None:
    assert (await checkout.refused("key", expected_total=text)).message.startswith("expected-total: must be an amount")


async def test_an_order_of_the_expected_total_is_placed_and_repeated_although_prices_have_changed(
    checkout: Checkout,
) -> None:
    placed = await checkout.place("key-1", expected_total="45.9500 EUR")
    checkout.peers.cart.fill("ann", mug=5)
    again = await checkout.place("key-1", expected_total=TOTAL)
    assert (placed.replayed, again.replayed, again.response) == (False, True, placed.response)


async def test_an_abandoned_order_begins_again_at_the_expected_total_only(start: Start, peers: FakePeers) -> None:
    async with start(failpoints="checkout.charge.before=error*1") as checkout:
        await checkout.refused("key-1", expected_total=TOTAL)
        await checkout.until_states("ABANDONED")
        peers.cart.fill("ann", mug=5)
        assert (await checkout.refused("key-1", expected_total=TOTAL)).reason == "TOTAL_CHANGED"
        assert await checkout.states() == ["ABANDONED"]
