import asyncio
import socket
from pathlib import Path

import pytest

from chassis.errors import Unavailable
from shop.cart_pb2 import GetCartRequest
from shop_cli.clients import cart_client
from shop_cli.local import supervision
from shop_cli.local.ports import HOST
from shop_cli.local.processes import Process, Shop
from shop_cli.local.supervision import observe, state_of, supervise
from shop_cli.local.workspace import discover, find
from shop_kit.waiting import wait_for_result, wait_until


async def test_a_service_that_ends_is_restarted(process: Process) -> None:
    supervision = asyncio.create_task(supervise(process))
    process.kill()
    await wait_until(lambda: process.starts == 2)
    await process.wait_until_serving()
    supervision.cancel()
    await asyncio.gather(supervision, return_exceptions=True)


async def test_a_restart_between_two_checks_and_each_change_of_state_are_reported(process: Process) -> None:
    reported: list[tuple[str, int]] = []
    observing = asyncio.create_task(observe(process, lambda found: reported.append((found.state, found.starts))))
    await wait_until(lambda: process.state == "serving")
    process.pause()
    await wait_until(lambda: process.state == "frozen")
    process.resume()
    await wait_until(lambda: process.state == "serving")
    await process.restart()
    await wait_until(lambda: reported[-1] == ("serving", 2))
    assert reported[:3] == [("serving", 1), ("frozen", 1), ("serving", 1)]
    observing.cancel()
    await asyncio.gather(observing, return_exceptions=True)


async def test_a_service_that_cannot_be_restarted_names_the_port_that_is_in_use(process: Process) -> None:
    await process.stop()
    with socket.create_server((HOST, process.port)):
        assert await state_of(process) == f"ended (0), port {process.port} is in use"
    assert await state_of(process) == "ended (0)"


async def test_a_service_serves_only_if_peers_reach_it_too(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # services use this proxy to call each other
    assert await process.is_serving() is None


async def test_a_service_without_its_database_is_said_to_be_so(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_STARTING_SECONDS", 0)
    dead = {"cart": {"REDIS_URL": "redis://127.0.0.1:1/0"}}
    async with Shop([find(discover(), "cart")], tmp_path, {"cart": port}, overrides=dead) as shop:
        await wait_for_result(shop["cart"].is_serving, lambda serving: serving is False)
        assert await state_of(shop["cart"]) == "not ready: its database does not answer"
        with pytest.raises(Unavailable, match="cart is not ready: its database does not answer") as raised:
            async with cart_client(shop["cart"]) as cart:
                await cart.GetCart(GetCartRequest(user_id="ada"))
        assert raised.value.reason == "NOT_READY"
