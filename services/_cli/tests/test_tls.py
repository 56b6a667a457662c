"""Health checks and commands against a service with TLS."""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shop_cli.local.identities import Identities
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.workspace import discover, find

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cart(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    folder = tmp_path_factory.mktemp("shop")
    identities = Identities.issue(folder / "tls", ["cart", "ad"])
    with reserved(1) as (port,):
        async with Shop([find(discover(), "cart")], folder, {"cart": port}, identities=identities) as shop:
            await shop.wait_until_serving()
            yield shop["cart"]


async def show_cart(cart: Process, tls_folder: str, *, release: str = "") -> tuple[int | None, str]:
    """Run `shop cart show` with a certificate folder. Return its exit status and everything that it printed."""
    folder = str(Path(cart.environment["TLS_FOLDER"]).parent / tls_folder) if tls_folder else ""
    environment = {**cart.environment, "CART_ADDR": cart.address, "TLS_FOLDER": folder, "TLS_RELEASE": release}
    command = (sys.executable, "-m", "shop_cli", "cart", "show", "ada")
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd="/", stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode() + errors.decode()


async def test_health_is_checked_over_tls_alone(cart: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await cart.is_serving()
    monkeypatch.setattr(cart, "certificates", None)
    assert await cart.is_serving() is None


async def test_an_operator_reaches_a_forwarded_port_by_the_name_of_the_service(cart: Process) -> None:
    assert await show_cart(cart, "operator") == (0, "The cart of ada is empty.\n")


@pytest.mark.parametrize(
    ("tls_folder", "release", "line"),
    [
        ("", "", "TLS_FAILED: cart at {}: .*does the peer require TLS, or not accept"),
        ("operator", "other", "TLS_FAILED: cart at {}: .*the peer's certificate has another name"),
        ("missing", "", "INVALID_ARGUMENT: TLS_FOLDER: "),
        ("ad", "", "CALLER_NOT_ALLOWED: this caller may not call shop.CartService/GetCart"),
    ],
)
async def test_a_wrong_certificate_is_one_line(cart: Process, tls_folder: str, release: str, line: str) -> None:
    status, output = await show_cart(cart, tls_folder, release=release)
    assert re.fullmatch(line.format(cart.address) + ".*\n", output)
    assert status == (2 if line.startswith("INVALID_ARGUMENT") else 1)
