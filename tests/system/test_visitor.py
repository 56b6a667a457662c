"""tests/e2e/storefront.py, which visits the storefront of a release, works against two replicas on this machine."""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shop_cli.local.processes import Process
from shop_lab.world.running_shop import RunningShop

SCRIPT = Path(__file__).parents[1] / "e2e/storefront.py"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replicas(shop: RunningShop, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Process]]:
    """Two storefronts with the same session key, which is in their common folder."""
    async with shop.storefronts(tmp_path_factory.mktemp("storefront"), 2, SECURE_COOKIE="1") as started:
        yield started


async def visit(storefront: Process, cookies: Path, action: str) -> tuple[int | None, str]:
    """Return the script's exit status and output."""
    visitor = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT), f"http://{storefront.address}", str(cookies), action), stdout=PIPE, stderr=STDOUT
    )
    output = (await visitor.communicate())[0].decode()
    return visitor.returncode, output


async def test_a_session_that_began_at_one_replica_orders_at_another(replicas: list[Process], tmp_path: Path) -> None:
    first, second = replicas
    for storefront, action in ((first, "fill"), (second, "cart"), (second, "order")):
        status, output = await visit(storefront, tmp_path / "cookies", action)
        assert status == 0, output


async def test_another_session_does_not_see_the_cart(replicas: list[Process], tmp_path: Path) -> None:
    await visit(replicas[0], tmp_path / "cookies", "fill")
    status, output = await visit(replicas[1], tmp_path / "other-cookies", "cart")
    assert (status, output) == (1, "copper-kettle is not in the cart\n")
