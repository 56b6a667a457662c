"""A service with TLS, seen by its health checks and by commands, whose errors say in one line what to do."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from chassis.tls.authority import Authority
from shop_cli.local import health
from shop_cli.local.identities import Identities
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.workspace import discover, find

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOUR = timedelta(hours=1)
SPIFFE_ID = "spiffe://shop.local/ns/local/sa/operator"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cart(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    """The cart service with TLS; folders of certificates that are wrong are beside the right ones."""
    folder = tmp_path_factory.mktemp("shop")
    identities = Identities.issue(folder / "tls", ["cart", "ad"])
    foreign = Authority.create("foreign", HOUR)
    right = (identities.operator / "ca.crt").read_bytes()
    for name, authorities in {"foreign": foreign.certificate, "refused": foreign.certificate + right}.items():
        write(folder / "tls" / name, foreign, authorities, HOUR)
    write(folder / "tls" / "expired", foreign, foreign.certificate, timedelta(seconds=-1))
    with reserved(1) as (port,):
        async with Shop([find(discover(), "cart")], folder, {"cart": port}, identities=identities) as shop:
            await shop.wait_until_serving()
            yield shop["cart"]


def write(folder: Path, authority: Authority, authorities: bytes, valid: timedelta) -> None:
    issued = authority.issue(["localhost"], SPIFFE_ID, valid)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(issued.certificate)
    (folder / "tls.key").write_bytes(issued.key)
    (folder / "ca.crt").write_bytes(authorities)


async def show_cart(cart: Process, tls_folder: str, *arguments: str, release: str = "") -> str:
    """Run `shop cart show` with a folder of certificates; return what it printed."""
    folder = str(Path(cart.environment["TLS_FOLDER"]).parent / tls_folder) if tls_folder else ""
    environment = {**cart.environment, "CART_ADDR": cart.address, "TLS_FOLDER": folder, "TLS_RELEASE": release}
    command = (sys.executable, "-m", "shop_cli", "cart", "show", "ada", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd="/", stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    return output.decode() + errors.decode()


async def test_health_is_checked_over_tls_alone(cart: Process) -> None:
    assert await cart.is_serving()
    assert await health.is_serving(cart.program, cart.address) is None


async def test_an_operator_reaches_a_forwarded_port_by_the_name_of_the_service(cart: Process) -> None:
    assert await show_cart(cart, "operator") == "The cart of ada is empty.\n"


@pytest.mark.parametrize(
    ("tls_folder", "release", "line"),
    [
        ("", "", "TLS_FAILED: cart at {}: it requires TLS: set TLS_FOLDER to a folder with your tls.crt"),
        ("operator", "other", "TLS_FAILED: cart at {}: its certificate is not valid here, Hostname mismatch"),
        ("foreign", "", "TLS_FAILED: cart at {}: its certificate is not valid here, unable to get local issuer"),
        ("refused", "", "TLS_FAILED: cart at {}: it refuses the certificate in "),
        ("expired", "", "INVALID_ARGUMENT: TLS_FOLDER: "),
        ("missing", "", "INVALID_ARGUMENT: TLS_FOLDER: "),
        ("ad", "", "CALLER_NOT_ALLOWED: this caller may not call shop.CartService/GetCart"),
    ],
)
async def test_a_certificate_that_does_not_fit_is_one_line(
    cart: Process, tls_folder: str, release: str, line: str
) -> None:
    output = await show_cart(cart, tls_folder, release=release)
    assert output.startswith(line.format(cart.address))
    assert output.count("\n") == 1


async def test_a_service_without_tls_is_one_line(cart: Process) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\4\0\0\0\0\0")  # the first frame of HTTP/2
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    output = await show_cart(cart, "operator", "--address", address)
    server.close()
    assert output == f"TLS_FAILED: cart at {address}: it uses no TLS: unset TLS_FOLDER\n"
