"""Requests are recognized while the key of their fingerprints is replaced."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from chassis.rpc.status import from_rpc_error
from shop import checkout_pb2
from shop_lab.world.fake_peers import FakePeers

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
Start = Callable[..., Any]

OLD, NEW = "o" * 32, "n" * 32


@pytest.mark.parametrize("key", ["key", None])
async def test_a_repeated_request_finds_its_order_after_the_hmac_key_changed(
    peers: FakePeers, start: Start, request_of: Request, key: str | None
) -> None:
    async with peers.serving() as address:
        async with start(address, hmac_key=OLD) as checkout:
            first = await checkout.place(request_of(), key)
        async with start(address, hmac_key=f"{NEW},{OLD}") as checkout:
            again = await checkout.place(request_of(), key)
    assert (again.replayed, again.response) == (True, first.response)


async def test_an_order_begun_with_the_new_key_is_found_by_a_replica_that_only_accepts_it(
    peers: FakePeers, start: Start, request_of: Request
) -> None:
    async with (
        peers.serving() as address,
        start(address, hmac_key=f"{NEW},{OLD}") as updated,
        start(address, hmac_key=f"{OLD},{NEW}") as outdated,
    ):
        first = await updated.place(request_of(), "key")
        assert (await outdated.place(request_of(), "key")).response == first.response


async def test_a_key_reused_for_a_different_request_is_refused_while_hmac_keys_change(
    peers: FakePeers, start: Start, request_of: Request
) -> None:
    async with peers.serving() as address:
        async with start(address, hmac_key=OLD) as checkout:
            await checkout.place(request_of(), "key")
        async with start(address, hmac_key=f"{NEW},{OLD}") as checkout:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await checkout.place(request_of(email="bob@mail.example"), "key")
    assert from_rpc_error(refused.value).reason == "IDEMPOTENCY_KEY_REUSED"
