"""The control room of a running shop with TLS, and the commands that use it."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shop_cli.local.run_file import Run
from shop_kit.running_shop import run_shop
from shop_kit.waiting import wait_for_result, wait_until


@dataclass(frozen=True)
class UpShop:
    """A shop that `shop up` runs."""

    folder: Path
    run: Run

    async def shop(self, *arguments: str, **variables: str) -> tuple[int | None, str]:
        """Run a command in the shop's folder; return its exit status and everything that it printed."""
        status, output, errors = await run_shop(*arguments, folder=self.folder, environment={**os.environ, **variables})
        return status, output + errors

    async def order(self, user: str, *options: str) -> str:
        """Order one product; return what the command printed."""
        await self.shop("cart", "add", user, "copper-kettle")
        status, output = await self.shop("order", user, *options)
        assert status == 0, output
        return output

    async def status(self) -> dict[str, Any]:
        async with self.client() as client:
            found: dict[str, Any] = (await client.get("/api/status")).json()
        return found

    async def wait_for(self, service: str, **expected: object) -> dict[str, Any]:
        """Wait until the status says this about a service; return all that it says."""

        async def found() -> dict[str, Any]:
            services: list[dict[str, Any]] = (await self.status())["services"]
            wanted = {"name": service, **expected}.items()
            return next((found for found in services if wanted <= found.items()), {})

        return await wait_until(found)

    def client(self) -> httpx2.AsyncClient:
        """Return a client of the control room that sends the token."""
        headers = {"Authorization": f"Bearer {self.run.token}"}
        return httpx2.AsyncClient(base_url=self.run.control_room, headers=headers, timeout=300)


@pytest.fixture
def up(run: Run) -> UpShop:
    return UpShop(Path(run.folder), run)


async def test_an_order_shows_its_trace_which_is_found_by_the_order(up: UpShop) -> None:
    calls = ("checkout CheckoutService/PlaceOrder", "payment PaymentService/Charge")
    output = await up.order("trace", "--trace")
    assert [call for call in calls if call not in output] == []
    order_id = json.loads(await up.order("found", "--json"))["order"]["order_id"]

    async def found() -> str:
        _, output = await up.shop("traces", "--order", order_id, "--min-ms", "0.00001", "--json")
        return output if order_id in output else ""

    listed = await wait_until(found)
    status, tree = await up.shop("trace", json.loads(listed.splitlines()[-1])["trace_id"])
    assert status == 0
    assert calls[0] in tree
    status, output = await up.shop("trace", "0" * 32)
    assert status == 1
    assert re.fullmatch(f"TRACE_NOT_FOUND: the trace {'0' * 32} is unknown or no longer stored: .*\n", output)


async def test_status_and_reconciliation_show_that_all_orders_agree(up: UpShop) -> None:
    await up.order("status")

    async def agrees() -> bool:
        found = (await up.status())["reconciliation"]
        return bool(found["verdict"] == "holds" and found["orders"] == found["charges"] == found["confirmations"] > 0)

    await wait_until(agrees)
    status, output = await up.shop("status", "--json")
    assert (status, json.loads(output)["reconciliation"]["verdict"]) == (0, "holds")
    for release, expected in (("", 0), ("other", 2)):  # behind forwarded ports services have the names of a release
        status, output = await up.shop("reconcile", TLS_FOLDER=up.run.tls_folder, TLS_RELEASE=release)
        assert status == expected, output


@pytest.mark.parametrize("action", ["kill", "restart"])
async def test_a_service_that_is_killed_or_restarted_is_started_again(up: UpShop, action: str) -> None:
    before = (await up.wait_for("recommendation"))["restarts"]
    await up.shop(action, "recommendation")
    await up.wait_for("recommendation", restarts=before + 1, state="serving")


async def test_an_unknown_service_is_refused_by_name_and_the_log_of_others_is_printed(up: UpShop) -> None:
    for command in ("kill", "logs"):
        status, output = await up.shop(command, "submarine")
        assert status == 2
        assert re.fullmatch("UNKNOWN_SERVICE: .*submarine.*\n", output)
    status, output = await up.shop("logs", "cart")
    assert status == 0
    assert "serving" in output


async def test_a_frozen_service_is_one_clear_line_until_it_is_resumed(up: UpShop) -> None:
    await up.shop("freeze", "currency")
    try:
        await up.wait_for("currency", state="frozen")
        status, output = await up.shop("convert", "1", "USD", "EUR")
    finally:
        await up.shop("resume", "currency")
    assert status == 4
    assert re.fullmatch(r"(NO_RESPONSE|NOTHING_LISTENS): .*currency.*frozen.*`shop status`\)\n", output)
    await up.wait_for("currency", state="serving")


async def test_watched_orders_are_printed_as_they_change(up: UpShop) -> None:
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shop_cli", "orders", "watch", "--json", cwd=up.folder, stdout=PIPE
    )
    assert watching.stdout
    printed = asyncio.create_task(watching.stdout.readline())
    while not printed.done():  # the command may begin to watch after an order
        await up.order("watch")
    watching.terminate()
    await watching.communicate()
    assert json.loads(printed.result())["user_id"] == "watch"


async def test_an_order_survives_a_frozen_payment_and_a_killed_checkout(up: UpShop) -> None:
    async with up.client() as client:
        assert (await client.post("/fault_demo")).status_code == 303
        page = await wait_for_result(lambda: client.get("/"), lambda found: "payment&#39;s ledger has" in found.text)
    assert "taken_over" in page.text
    assert "payment&#39;s ledger has 1 charge for this order" in page.text
    assert all(f'aria-label="freeze {name}"' in page.text for name in ("cart", "checkout", "employee-api"))
