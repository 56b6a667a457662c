"""The control room of a running shop, and the commands that use it."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from shop_cli.local.run_file import Run, read_run
from shop_kit.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
START_SECONDS = 90


@dataclass(frozen=True)
class UpShop:
    """A shop that `shop up` runs."""

    folder: Path
    run: Run

    async def shop(self, *arguments: str) -> tuple[int, str]:
        """Run a command in the shop's folder; return its exit status and everything that it printed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shop_cli", *arguments, cwd=self.folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        return process.returncode or 0, output.decode() + errors.decode()

    async def order(self, user: str, *options: str) -> str:
        """Order one product; return what the command printed."""
        await self.shop("cart", "add", user, "copper-kettle")
        status, output = await self.shop("order", user, *options)
        assert status == 0, output
        return output

    async def state(self, service: str) -> str:
        _, output = await self.shop("status", "--json")
        services = json.loads(output)["services"]
        return next(str(listed["state"]) for listed in services if listed["name"] == service)

    async def wait_for_state(self, service: str, state: str) -> None:
        async def is_in_state() -> bool:
            return await self.state(service) == state

        await wait_until(is_in_state)

    def client(self) -> httpx2.AsyncClient:
        """Return a client of the control room that sends the token."""
        headers = {"Authorization": f"Bearer {self.run.token}"}
        return httpx2.AsyncClient(base_url=self.run.control_room, headers=headers, timeout=30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UpShop]:
    folder = tmp_path_factory.mktemp("shop")
    arguments = ("-m", "shop_cli", "up", "--any-ports", "--folder", str(folder))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE)
    assert process.stdout
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"is ready" not in (line := await process.stdout.readline()):
                assert line, "the shop ended"
        run = read_run(folder)
        assert run is not None
        yield UpShop(folder, run)
    finally:
        process.terminate()
        await process.communicate()


async def test_an_order_shows_its_trace_across_services(up: UpShop) -> None:
    output = await up.order("trace", "--trace")
    for call in ("checkout CheckoutService/PlaceOrder", "payment PaymentService/Charge"):
        assert call in output


async def test_a_trace_is_found_by_its_order_and_shown_as_a_tree(up: UpShop) -> None:
    order_id = json.loads(await up.order("found", "--json"))["order"]["order_id"]

    async def found() -> bool:
        return order_id in (await up.shop("traces", "--order", order_id, "--json"))[1]

    await wait_until(found)
    _, listed = await up.shop("traces", "--order", order_id, "--json")
    status, tree = await up.shop("trace", json.loads(listed.splitlines()[-1])["trace_id"])
    assert status == 0
    assert "checkout CheckoutService/PlaceOrder" in tree


async def test_an_unknown_trace_is_one_line(up: UpShop) -> None:
    status, output = await up.shop("trace", "0" * 32)
    assert status == 1
    assert output == f"TRACE_NOT_FOUND: no trace has the id {'0' * 32}: the latest 500 are stored\n"


async def test_the_status_shows_every_service_and_that_all_orders_agree(up: UpShop) -> None:
    await up.order("status")

    async def agrees() -> bool:
        found = json.loads((await up.shop("status", "--json"))[1])["reconciliation"]
        return bool(found["verdict"] == "holds" and found["orders"] == found["charges"] == found["confirmations"] > 0)

    await wait_until(agrees)


async def test_a_service_can_be_frozen_and_resumed(up: UpShop) -> None:
    await up.shop("freeze", "ad")
    await up.wait_for_state("ad", "frozen")
    await up.shop("resume", "ad")
    await up.wait_for_state("ad", "serving")


@pytest.mark.parametrize("action", ["kill", "restart"])
async def test_a_service_that_is_killed_or_restarted_is_started_again(up: UpShop, action: str) -> None:
    async def restarts() -> int:
        services = json.loads((await up.shop("status", "--json"))[1])["services"]
        return next(int(service["restarts"]) for service in services if service["name"] == "recommendation")

    before = await restarts()
    await up.shop(action, "recommendation")

    async def restarted() -> bool:
        return await restarts() == before + 1

    await wait_until(restarted)
    await up.wait_for_state("recommendation", "serving")


async def test_an_unknown_service_is_refused_by_name(up: UpShop) -> None:
    status, output = await up.shop("kill", "submarine")
    assert (status, output) == (1, "UNKNOWN_SERVICE: submarine is not part of this shop\n")


async def test_a_frozen_service_is_one_clear_line(up: UpShop) -> None:
    await up.shop("freeze", "currency")
    try:
        status, output = await up.shop("convert", "1", "USD", "EUR")
    finally:
        await up.shop("resume", "currency")
    assert status == 4
    assert re.fullmatch(r"(NO_RESPONSE|NOTHING_LISTENS): .*currency.*frozen.*`shop status`\)\n", output)


async def test_the_log_of_a_service_is_printed(up: UpShop) -> None:
    status, output = await up.shop("logs", "cart")
    assert status == 0
    assert "serving" in output


async def test_confirmations_are_listed_and_shown(up: UpShop) -> None:
    order_id = json.loads(await up.order("mail", "--json"))["order"]["order_id"]

    async def listed() -> bool:
        return order_id in (await up.shop("mail", "list"))[1]

    await wait_until(listed)
    _, mail = await up.shop("mail", "show", order_id)
    assert f"Subject: Your order {order_id}" in mail


async def test_watched_orders_are_printed_as_they_change(up: UpShop) -> None:
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shop_cli", "orders", "watch", "--json", cwd=up.folder, stdout=PIPE
    )
    assert watching.stdout
    try:
        first: bytes = b""
        while not first:  # the command may begin to watch after an order
            await up.order("watch")
            try:
                first = await asyncio.wait_for(watching.stdout.readline(), 5)
            except TimeoutError:
                continue
    finally:
        watching.terminate()
        await watching.communicate()
    assert json.loads(first)["user_id"] == "watch"


async def test_the_page_shows_every_service(up: UpShop) -> None:
    async with up.client() as client:
        page = (await client.get("/")).text
    assert all(f'aria-label="freeze {name}"' in page for name in ("cart", "checkout", "employee-api"))


async def test_the_page_of_a_trace_shows_its_waterfall(up: UpShop) -> None:
    await up.order("waterfall", "--trace")
    async with up.client() as client:
        (trace, *_) = (await client.get("/api/traces", params={"service": "payment"})).json()
        page = (await client.get(f"/traces/{trace['trace_id']}")).text
    assert "PaymentService/Charge" in page
    assert "<rect" in page


async def test_what_is_searched_for_is_shown_as_text(up: UpShop) -> None:
    async with up.client() as client:
        page = (await client.get("/", params={"order": "<script>alert(1)</script>"})).text
    assert "<script>alert" not in page


async def test_a_malformed_search_is_a_clear_page(up: UpShop) -> None:
    async with up.client() as client:
        response = await client.get("/", params={"min_ms": "many"}, headers={"Accept": "text/html"})
    assert response.status_code == 400
    assert "min_ms: must be a number" in response.text


async def test_the_page_is_updated_by_events(up: UpShop) -> None:
    async with up.client() as client, client.stream("GET", "/events") as events:
        async for line in events.aiter_lines():
            fragments = json.loads(line.removeprefix("data: "))
            break
    assert set(fragments) == {"services", "reconciliation", "customers", "fault_demo", "traces"}


async def test_an_order_survives_a_frozen_payment_and_a_killed_checkout(up: UpShop) -> None:
    async with up.client() as client:
        assert (await client.post("/fault-demo")).status_code == 303

        async def over() -> bool:
            return "payment&#39;s ledger has" in (await client.get("/")).text

        await wait_until(over)
        page = (await client.get("/")).text
    assert "taken_over" in page
    assert "payment&#39;s ledger has 1 charge for this order" in page
