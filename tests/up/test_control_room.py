"""The control room of a running shop with TLS, and the commands that use it."""

import asyncio
import contextlib
import inspect
import json
import os
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

import ad_service.domain
from chassis.errors import Unavailable
from chassis.rpc import client
from chassis.tls.certificates import Certificates
from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop_cli.local.run_file import Run
from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_kit.running_shop import shop_up
from shop_kit.waiting import wait_until

# Python imports `sitecustomize` before a program adds its own folder to the path, as the images' do.
FINDER = """
import importlib.util, pathlib, sys

class Finder:
    def find_spec(name, path=None, target=None):
        file = pathlib.Path(__file__).with_name(f"{name}.py")
        return importlib.util.spec_from_file_location(name, file) if file.exists() else None

sys.meta_path.insert(0, Finder)
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class UpShop:
    """A shop that `shop up` runs."""

    folder: Path
    run: Run

    async def shop(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """Run a command in the shop's folder; return its exit status and everything that it printed."""
        command, environment = (sys.executable, "-m", "shop_cli", *arguments), {**os.environ, **variables}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        return process.returncode or 0, output.decode() + errors.decode()

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

    async def service(self, name: str) -> dict[str, Any]:
        """Return what the status says about a service."""
        found: dict[str, Any] = {service["name"]: service for service in (await self.status())["services"]}[name]
        return found

    async def wait_for_state(self, service: str, state: str) -> None:
        async def is_in_state() -> bool:
            return bool((await self.service(service))["state"] == state)

        await wait_until(is_in_state)

    @contextlib.asynccontextmanager
    async def stub(self, stub: Callable[[Any], Any], address: str, caller: str = "operator") -> AsyncIterator[Any]:
        """Open a stub of a service at an address, with the certificate of a caller."""
        certificates = Certificates.load(str(Path(self.run.tls_folder).with_name(caller)))
        channel = client.channel(address, "", timeout_seconds=300, certificates=certificates)
        try:
            yield stub(channel)
        finally:
            await channel.close()

    def client(self) -> httpx2.AsyncClient:
        """Return a client of the control room that sends the token."""
        headers = {"Authorization": f"Bearer {self.run.token}"}
        return httpx2.AsyncClient(base_url=self.run.control_room, headers=headers, timeout=300)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UpShop]:
    folder = tmp_path_factory.mktemp("shop")
    async with shop_up(folder, "--tls", "--lab") as run:
        yield UpShop(folder, run)


async def test_an_order_shows_its_trace_which_is_found_by_the_order(up: UpShop) -> None:
    calls = ("checkout CheckoutService/PlaceOrder", "payment PaymentService/Charge")
    output = await up.order("trace", "--trace")
    assert [call for call in calls if call not in output] == []
    order_id = json.loads(await up.order("found", "--json"))["order"]["order_id"]

    async def found() -> str:
        _, output = await up.shop("traces", "--order", order_id, "--json")
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
    before = (await up.service("recommendation"))["restarts"]
    await up.shop(action, "recommendation")

    async def restarted() -> bool:
        return bool((await up.service("recommendation"))["restarts"] == before + 1)

    await wait_until(restarted)
    await up.wait_for_state("recommendation", "serving")


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
        await up.wait_for_state("currency", "frozen")
        status, output = await up.shop("convert", "1", "USD", "EUR")
    finally:
        await up.shop("resume", "currency")
    assert status == 4
    assert re.fullmatch(r"(NO_RESPONSE|NOTHING_LISTENS): .*currency.*frozen.*`shop status`\)\n", output)
    await up.wait_for_state("currency", "serving")


async def test_the_laboratory_alone_makes_a_service_fail_until_it_stops(up: UpShop) -> None:
    internal = up.run.addresses["ad-internal"]
    async with up.stub(AdServiceStub, up.run.addresses["ad"]) as ads, up.stub(FailpointsStub, internal) as operator:
        wanted = Failpoint(id="7", specification="shop.AdService/GetAds=error:UNAVAILABLE", seconds_to_live=600)
        with pytest.raises(Unavailable, match="ALLOWED_CALLS does not list it"):
            await operator.SetFailpoint(SetFailpointRequest(failpoint=wanted))
        async with up.stub(FailpointsStub, internal, "lab") as failpoints:
            await failpoints.SetFailpoint(SetFailpointRequest(failpoint=wanted))
            with pytest.raises(Unavailable, match="^unavailable$"):
                await ads.GetAds(AdRequest())
            await failpoints.SetFailpoint(SetFailpointRequest(failpoint=Failpoint(id="7")))
        assert (await ads.GetAds(AdRequest())).ads


async def test_a_service_runs_a_patched_module_until_it_is_removed(up: UpShop) -> None:
    assert up.run.lab
    folder = up.folder / ".shop/modules/ad"
    folder.mkdir(parents=True)
    original = inspect.getsource(ad_service.domain)
    (folder / "sitecustomize.py").write_text(FINDER)
    (folder / "ad_service.domain.py").write_text(original.replace("or self._house", "or self._house * 2"))
    async with up.stub(AdServiceStub, up.run.addresses["ad"]) as ads:

        async def counted() -> int:
            with contextlib.suppress(Unavailable):  # while it restarts
                return len((await ads.GetAds(AdRequest())).ads)
            return 0

        before = await counted()
        for expected in (2 * before, before):
            await up.shop("restart", "ad")

            async def changed(expected: int = expected) -> bool:
                return await counted() == expected

            await wait_until(changed)
            shutil.rmtree(folder, ignore_errors=True)


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


async def test_the_page_is_updated_by_events(up: UpShop) -> None:
    async with up.client() as client, client.stream("GET", "/events") as events:
        async for line in events.aiter_lines():
            fragments = json.loads(line.removeprefix("data: "))
            break
    assert set(fragments) == {"services", "reconciliation", "customers", "fault_demo", "calls", "traces", "panel"}


async def test_an_order_survives_a_frozen_payment_and_a_killed_checkout(up: UpShop) -> None:
    async with up.client() as client:
        assert (await client.post("/fault-demo")).status_code == 303

        async def over() -> bool:
            return "payment&#39;s ledger has" in (await client.get("/")).text

        await wait_until(over)
        page = (await client.get("/")).text
    assert "taken_over" in page
    assert "payment&#39;s ledger has 1 charge for this order" in page
    assert all(f'aria-label="freeze {name}"' in page for name in ("cart", "checkout", "employee-api"))
