"""Requests are recognized while the key of their fingerprints is replaced."""

import pytest

from shop_kit.checkouts import Start

OLD, NEW = "o" * 32, "n" * 32


@pytest.mark.parametrize("key", ["key", None])
async def test_a_repeated_request_finds_its_order_after_the_hmac_key_changed(start: Start, key: str | None) -> None:
    async with start(hmac_key=OLD) as checkout:
        first = await checkout.place(key)
    async with start(hmac_key=f"{NEW},{OLD}") as checkout:
        again = await checkout.place(key)
    assert (again.replayed, again.response) == (True, first.response)


async def test_an_order_begun_with_the_new_key_is_found_by_a_replica_that_only_accepts_it(start: Start) -> None:
    async with start(hmac_key=f"{NEW},{OLD}") as updated, start(hmac_key=f"{OLD},{NEW}") as outdated:
        first = await updated.place("key")
        assert (await outdated.place("key")).response == first.response
